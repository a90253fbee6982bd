// diffusers LTXVideoTransformer3DModel: LTX-Video. Tokens are latents as they are; text is attended to.
#include "model/family.h"
#include "nn/ada_norm.h"
#include "nn/denoiser.h"
#include "nn/diffusers_attention.h"
#include "nn/rotary.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// AutoencoderKLLTXVideo: pixels of a latent along each side, frames of one after the first
constexpr int64_t kLtxPixelsPerLatent = 32, kLtxFramesPerLatent = 8;

struct LtxConfig {
  explicit LtxConfig(const Config& c)
      : in_channels(c.size({"in_channels"}, 128)),
        out_channels(c.is_null("out_channels") ? in_channels : c.size({"out_channels"}, 128)),
        heads(c.size({"num_attention_heads"}, 32)),
        head_dim(c.size({"attention_head_dim"}, 64)),
        width(checked_mul(heads, head_dim)),
        cross_attention_dim(c.size({"cross_attention_dim"}, 2048)),
        num_layers(c.size({"num_layers"}, 28)),
        caption_channels(c.size({"caption_channels"}, 4096)),
        affine(c.flag({"norm_elementwise_affine"}, false)),
        attention_bias(c.flag({"attention_bias"}, true)),
        attention_out_bias(c.flag({"attention_out_bias"}, true)),
        activation(feed_forward_kind(c)) {
    if (c.size({"patch_size"}, 1) != 1 || c.size({"patch_size_t"}, 1) != 1)
      throw Error("[" + c.source() + "] patches of more than one latent are not simulated",
                  "LTX-Video has patch_size 1 and patch_size_t 1");
    if (width % 2 != 0) throw Error("[" + c.source() + "] a width of " + std::to_string(width) + " is odd", "channels are turned in pairs");
    if (cross_attention_dim != width)
      throw Error("[" + c.source() + "] cross_attention_dim " + std::to_string(cross_attention_dim) + ", but captions are projected to " +
                      std::to_string(width),
                  "make it num_attention_heads x attention_head_dim");
  }
  int64_t in_channels, out_channels, heads, head_dim, width, cross_attention_dim, num_layers, caption_channels;
  bool affine, attention_bias, attention_out_bias;
  FeedForwardKind activation;
};

// apply_rotary_emb of transformer_ltx.py: on (B, S, C), before heads are parted
Tensor ltx_rotary(const Tensor& x, const CosSin& tables) {
  const Tensors part = unbind(view(x, {x.size(0), x.size(1), -1, 2}), -1);  // (B, S, C / 2)
  Tensor rotated;
  {
    const Tensor minus = neg(part[1]);
    rotated = flatten(stack({minus, part[0]}, -1), 2);  // (B, S, C)
  }
  Tensor out;
  {
    Tensor first = to(x, DType::float32);
    first = mul(first, tables.cos);
    Tensor second = to(rotated, DType::float32);
    second = mul(second, tables.sin);
    out = add(first, second);
  }
  out = to(out, x.dtype());
  return out;
}

struct LtxAttention : Module {
  LtxAttention(Module& parent, std::string_view name, const LtxConfig& c, int64_t context_width)
      : Module(parent, name),
        heads(c.heads),
        norm_q(*this, "norm_q", c.width),
        norm_k(*this, "norm_k", c.width),
        to_q(*this, "to_q", c.width, c.width, c.attention_bias),
        to_k(*this, "to_k", context_width, c.width, c.attention_bias),
        to_v(*this, "to_v", context_width, c.width, c.attention_bias) {
    to_out.add(c.width, c.width, c.attention_out_bias);
  }

  // context: undefined for attention to itself; mask: (B, 1, T)
  Tensor operator()(const Tensor& x, const Tensor& context, const CosSin* rotary, const Tensor& mask) {
    Forward here(*this);
    const Tensor& attended = context ? context : x;
    Tensor bias;
    if (mask) {
      bias = repeat_interleave(mask, heads, 0);  // prepare_attention_mask: one copy a head
      bias = view(bias, {x.size(0), heads, -1, bias.size(-1)});
    }
    Tensor query = to_q(x), key = to_k(attended), value = to_v(attended);  // (B, S, C), (B, T, C)
    query = norm_q(query);
    key = norm_k(key);
    if (rotary) {
      query = ltx_rotary(query, *rotary);
      key = ltx_rotary(key, *rotary);
    }
    const auto parted = [&](const Tensor& t) { return view(t, {t.size(0), t.size(1), heads, -1}); };
    query = parted(query);  // (B, S, H, D)
    key = parted(key);
    value = parted(value);
    Tensor hidden = dispatch_attention(query, key, value, bias);
    hidden = flatten(hidden, 2, 3);
    hidden = to(hidden, query.dtype());
    hidden = to_out[0](hidden);
    return hidden;
  }

  int64_t heads;
  FusedRMSNorm norm_q, norm_k;
  Linear to_q, to_k, to_v;
  ModuleList<Linear> to_out{*this, "to_out"};
};

struct LtxBlock : Module {
  LtxBlock(Module& parent, std::string_view name, const LtxConfig& c)
      : Module(parent, name), config(c), scale_shift_table(parameter("scale_shift_table", {6, c.width})) {}

  // temb: (B, 1, 6 C)
  Tensor operator()(const Tensor& hidden_in, const Tensor& text, const Tensor& temb, const CosSin& rotary, const Tensor& mask) {
    Forward here(*this);
    Tensor normed = norm1(hidden_in);  // (B, S, C)
    const Tensor ada_values =
        add(unsqueeze(unsqueeze(scale_shift_table, 0), 0), reshape(temb, {hidden_in.size(0), temb.size(1), 6, -1}));  // (B, 1, 6, C)
    const Tensors part = unbind(ada_values, 2);  // shift, scale, gate, twice: (B, 1, C)
    normed = scale_and_shift(normed, part[1], part[0]);
    Tensor attn_hidden = attn1(normed, {}, &rotary, {});
    Tensor hidden;
    {
      const Tensor gated = mul(attn_hidden, part[2]);
      hidden = add(hidden_in, gated);
    }
    attn_hidden = attn2(hidden, text, nullptr, mask);
    hidden = add(hidden, attn_hidden);
    {
      Tensor second = norm2(hidden);
      normed = scale_and_shift(std::move(second), part[4], part[3]);
    }
    const Tensor ff_output = ff(normed);
    const Tensor gated = mul(ff_output, part[5]);
    return add(hidden, gated);
  }

  const LtxConfig& config;
  Tensor scale_shift_table;
  DiffusersRMSNorm norm1{*this, "norm1", config.width, config.affine};
  LtxAttention attn1{*this, "attn1", config, config.width};
  DiffusersRMSNorm norm2{*this, "norm2", config.width, config.affine};
  LtxAttention attn2{*this, "attn2", config, config.cross_attention_dim};
  DiffusersFeedForward ff{*this, "ff", config.width, config.activation};
};

// AdaLayerNormSingle without additional conditions.
struct LtxTimeEmbed : Module {
  LtxTimeEmbed(Module& parent, std::string_view name, int64_t width)
      : Module(parent, name), emb(*this, width), linear(*this, "linear", width, checked_mul(6, width)) {}
  struct Emb : Module {
    Emb(Module& parent, int64_t width)
        : Module(parent, "emb"), time_proj(*this, "time_proj", 256), timestep_embedder(*this, "timestep_embedder", 256, width) {}
    Timesteps time_proj;
    TimestepEmbedding timestep_embedder;
  };
  // {(B, 6 C), (B, C)}
  Tensors operator()(const Tensor& timestep, DType dtype) const {
    Forward here(*this);
    Tensor embedded;
    {
      const Tensor projected = emb.time_proj(timestep);
      embedded = emb.timestep_embedder(to(projected, dtype));
    }
    return {linear(silu(embedded)), embedded};
  }
  Emb emb;
  Linear linear;
};

struct LtxGrid {
  int64_t frames, rows, columns;
  int64_t tokens() const { return checked_mul(checked_mul(frames, rows), columns); }
};

// LTXVideoRotaryPosEmbed: fp32 tables (B, S, C); the third that does not divide is padded in front.
CosSin ltx_tables(Tape& tape, int64_t batch, int64_t width, const LtxGrid& grid) {
  const int64_t s = grid.tokens(), per_axis = width / 6, rest = width % 6;
  Tensor freqs;
  {
    const Tensor places = filled(tape, "repeat", {batch, 3, grid.frames, grid.rows, grid.columns}, DType::float32);
    const Tensor centred = filled(tape, "sub", {batch, s, 3, 1}, DType::float32);
    freqs = filled(tape, "mul", {batch, s, 3, per_axis}, DType::float32);
    freqs = filled(tape, "clone", {batch, s, 3 * per_axis}, DType::float32);
  }
  const auto table = [&](const char* op) {
    const Tensor half = filled(tape, op, freqs.sizes(), DType::float32);
    return repeat_interleave(half, 2, -1);
  };
  Tensor cosine = table("cos"), sine = table("sin");
  if (rest == 0) return {cosine, sine};
  const Tensor ones = filled(tape, "ones_like", {batch, s, rest}, DType::float32),
               zeros = filled(tape, "zeros_like", {batch, s, rest}, DType::float32);
  cosine = cat({ones, cosine}, -1);
  sine = cat({zeros, sine}, -1);
  return {cosine, sine};
}

class LtxVideoTransformer3DModel : public Denoiser {
 public:
  LtxVideoTransformer3DModel(Module& parent, std::string_view name, const Config& config)
      : Denoiser(parent, name), config_(config), scale_shift_table_(parameter("scale_shift_table", {2, config_.width})) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override { return {samples, grid(canvas).tokens(), config_.in_channels}; }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override { return {samples, grid(canvas).tokens(), config_.out_channels}; }

  // text states and which of them count
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 128;
    grid_ = grid(canvas);
    return {{{samples, text, config_.caption_channels}, dtype}, {{samples, text}, DType::int64}};
  }

  Tensor predict(const Tensor& latents, const Tensor& time, const Tensors& c) override {
    Forward here(*this);
    const int64_t batch = latents.size(0);
    const CosSin rotary = ltx_tables(tape(), batch, config_.width, grid_);
    Tensor mask = to(c[1], latents.dtype());
    mask = rsub_scalar(mask);
    mask = unsqueeze(mul_scalar(mask), 1);  // (B, 1, T)
    Tensor hidden = proj_in_(latents);      // (B, S, C)
    Tensors embedded = time_embed_(flatten(time, 0), hidden.dtype());
    const Tensor temb = view(embedded[0], {batch, -1, embedded[0].size(-1)}),
                 embedded_timestep = view(embedded[1], {batch, -1, embedded[1].size(-1)});
    const Tensor text = caption_projection_(c[0]);  // (B, T, C)
    for (LtxBlock& block : transformer_blocks_) {
      const auto run = [&block, rotary, mask](const Tensors& in) -> Tensors { return {block(in[0], in[1], in[2], rotary, mask)}; };
      hidden = run_block(block, run, Tensors{hidden, text, temb})[0];
    }
    const Tensor values = add(unsqueeze(unsqueeze(scale_shift_table_, 0), 0), unsqueeze(embedded_timestep, 2));  // (B, 1, 2, C)
    hidden = norm_out_(hidden);
    hidden = scale_and_shift(hidden, select(values, 2, 1), select(values, 2, 0));
    return proj_out_(hidden);  // (B, S, out)
  }

 private:
  Module& add_blocks() {
    for (int64_t i = 0; i < config_.num_layers; ++i) transformer_blocks_.add(config_);
    return *this;
  }
  static LtxGrid grid(const Canvas& c) {
    return {(c.frames - 1) / kLtxFramesPerLatent + 1, tokens_along("ltx_video", "height", c.height, kLtxPixelsPerLatent),
            tokens_along("ltx_video", "width", c.width, kLtxPixelsPerLatent)};
  }

  LtxConfig config_;
  LtxGrid grid_{1, 1, 1};
  Tensor scale_shift_table_;
  Linear proj_in_{*this, "proj_in", config_.in_channels, config_.width};
  LtxTimeEmbed time_embed_{*this, "time_embed", config_.width};
  TextProjection caption_projection_{*this, "caption_projection", config_.caption_channels, config_.width, true};
  ModuleList<LtxBlock> transformer_blocks_{*this, "transformer_blocks"};
  LayerNorm norm_out_{add_blocks(), "norm_out", config_.width, false};
  Linear proj_out_{*this, "proj_out", config_.width, config_.out_channels};
};

std::unique_ptr<Model> make_ltx_video(Build& build, const Config& config) {
  return make_training_of<LtxVideoTransformer3DModel>(build, config);
}

}  // namespace

const Family& ltx_video_family() {
  static const Family kFamily{
      .name = "ltx_video",
      .library = "diffusers",
      .models = {{"ltx_video", {"LTXVideoTransformer3DModel"}, InputKind::own, 512, make_ltx_video}},
      .presets = {{"ltx-video", R"({"height":512,"width":768,"frames":49})", 512}},
  };
  return kFamily;
}

}  // namespace plimsoll
