// diffusers WanTransformer3DModel: Wan 2.1 and 2.2, text to video.
#include "model/family.h"
#include "nn/ada_norm.h"
#include "nn/denoiser.h"
#include "nn/diffusers_attention.h"
#include "nn/diffusers_layers.h"
#include "nn/rotary.h"
#include "nn/video_latents.h"
#include "ops/copy_slices.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct WanConfig {
  explicit WanConfig(const Config& c)
      : heads(c.size({"num_attention_heads"}, 40)),
        head_dim(c.size({"attention_head_dim"}, 128)),
        width(checked_mul(heads, head_dim)),
        in_channels(c.size({"in_channels"}, 16)),
        out_channels(c.is_null("out_channels") ? in_channels : c.size({"out_channels"}, 16)),
        text_dim(c.size({"text_dim"}, 4096)),
        freq_dim(c.size({"freq_dim"}, 256)),
        ffn_dim(c.size({"ffn_dim"}, 13824)),
        num_layers(c.size({"num_layers"}, 40)),
        cross_attn_norm(c.flag({"cross_attn_norm"}, true)),
        rope_max_seq_len(c.size({"rope_max_seq_len"}, 1024)) {
    const std::vector<int64_t> p = sizes_in(c, "patch_size", {1, 2, 2}, 3);
    patch = {p[0], p[1], p[2]};
    if (head_dim % 2 != 0)
      throw Error("[wan] attention_head_dim " + std::to_string(head_dim) + " is odd", "dims are turned in pairs: give an even number");
    for (const char* key : {"image_dim", "added_kv_proj_dim", "pos_embed_seq_len"})
      if (c.find({key})) throw Error(std::string("[wan] ") + key + ": images as a condition cannot be simulated", "leave it out");
  }
  int64_t heads, head_dim, width, in_channels, out_channels, text_dim, freq_dim, ffn_dim, num_layers;
  bool cross_attn_norm;
  int64_t rope_max_seq_len;
  PatchSize patch;
};

// Pairs of neighbours turned, written into a new tensor one half at a time. x: (B, S, H, D)
Tensor rotate(const Tensor& x, const CosSin& tables) {
  const Tensors part = unbind(view(x, {x.size(0), x.size(1), x.size(2), -1, 2}), -1);  // (B, S, H, D / 2)
  const int64_t dim = x.size(3);
  const Tensor cosine = slice(tables.cos, -1, 0, dim, 2), sine = slice(tables.sin, -1, 1, dim, 2);  // (1, S, 1, D / 2)
  Tensor out = nondiff("empty_like", x, x.dtype());
  Tensor value;
  {
    const Tensor first = mul(part[0], cosine), second = mul(part[1], sine);
    value = sub(first, second);
  }
  out = copy_into_slice_(out, value);
  value.reset();
  {
    const Tensor first = mul(part[0], sine), second = mul(part[1], cosine);
    value = add(first, second);
  }
  out = copy_into_slice_(out, value);
  return out;
}

struct WanAttention : Module {
  WanAttention(Module& parent, std::string_view name, const WanConfig& c)
      : Module(parent, name), config(c), head_dim(c.head_dim), norm_q((to_out.add(c.width, c.width), *this), "norm_q", c.width) {}

  // To itself with positions, or to a context without.
  Tensor operator()(const Tensor& hidden_in, const Tensor& context, const CosSin* rotary) {
    Forward here(*this);
    const Tensor& attended = context ? context : hidden_in;
    Tensor query = to_q(hidden_in), key = to_k(attended), value = to_v(attended);  // (B, S, C), (B, T, C)
    query = norm_q(query);
    key = norm_k(key);
    query = unflatten_heads(query, head_dim);  // (B, S, H, D)
    key = unflatten_heads(key, head_dim);
    value = unflatten_heads(value, head_dim);
    if (rotary) {
      query = rotate(query, *rotary);
      key = rotate(key, *rotary);
    }
    Tensor hidden = dispatch_attention(query, key, value);  // (B, S, H, D)
    hidden = flatten(hidden, 2, 3);
    hidden = to(hidden, query.dtype());
    hidden = to_out[0](hidden);
    return hidden;
  }

  const WanConfig& config;
  int64_t head_dim;
  Linear to_q{*this, "to_q", config.width, config.width};
  Linear to_k{*this, "to_k", config.width, config.width};
  Linear to_v{*this, "to_v", config.width, config.width};
  ModuleList<Linear> to_out{*this, "to_out"};
  FusedRMSNorm norm_q;
  FusedRMSNorm norm_k{*this, "norm_k", config.width};
};

// The norm of x in fp32, scaled and shifted, in the type of x.
Tensor modulated(const FP32LayerNorm& norm, const Tensor& x, const Tensor& scale, const Tensor& shift) {
  Tensor normed = norm(to(x, DType::float32));
  const Tensor y = scale_and_shift(std::move(normed), scale, shift);
  return to(y, x.dtype());
}

struct WanTransformerBlock : Module {
  WanTransformerBlock(Module& parent, std::string_view name, const WanConfig& c)
      : Module(parent, name),
        config(c),
        scale_shift_table(parameter("scale_shift_table", {1, 6, c.width})),
        norm2(c.cross_attn_norm ? std::make_unique<FP32LayerNorm>(*this, "norm2", c.width, true) : nullptr) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& encoder, const Tensor& temb, const CosSin& rotary) {
    Forward here(*this);
    const Tensors part = chunk(add(scale_shift_table, to(temb, DType::float32)), 6, 1);  // shift, scale, gate twice: (B, 1, C)
    Tensor normed = modulated(norm1, hidden_in, part[1], part[0]);                       // (B, S, C)
    Tensor attn_output = attn1(normed, {}, &rotary);
    Tensor hidden = gated(hidden_in, attn_output, part[2]);
    {
      const Tensor wide = to(hidden, DType::float32);
      normed = to(norm2 ? (*norm2)(wide) : wide, hidden.dtype());
    }
    attn_output = attn2(normed, encoder, nullptr);
    hidden = add(hidden, attn_output);
    normed = modulated(norm3, hidden, part[4], part[3]);
    const Tensor ff_output = ffn(normed);
    hidden = gated(hidden, ff_output, part[5], true);
    return hidden;
  }

  // (x.float() + y * gate) in the type of x; the feed-forward's result is made fp32 first.
  static Tensor gated(const Tensor& x, const Tensor& y, const Tensor& gate, bool wide = false) {
    Tensor sum;
    {
      const Tensor base = to(x, DType::float32);
      const Tensor product = mul(wide ? to(y, DType::float32) : y, gate);
      sum = add(base, product);
    }
    return to(sum, x.dtype());
  }

  const WanConfig& config;
  Tensor scale_shift_table;
  FP32LayerNorm norm1{*this, "norm1", config.width, false};
  WanAttention attn1{*this, "attn1", config};
  WanAttention attn2{*this, "attn2", config};
  std::unique_ptr<FP32LayerNorm> norm2;
  DiffusersFeedForward ffn{*this, "ffn", config.width, FeedForwardKind::gelu, config.ffn_dim};
  FP32LayerNorm norm3{*this, "norm3", config.width, false};
};

// Tables of all positions are buffers; those of a video are put together from them.
struct WanRotaryPosEmbed : Module {
  WanRotaryPosEmbed(Module& parent, std::string_view name, const WanConfig& c)
      : Module(parent, name),
        freqs_cos(buffer("freqs_cos", {c.rope_max_seq_len, c.head_dim})),
        freqs_sin(buffer("freqs_sin", {c.rope_max_seq_len, c.head_dim})) {}

  CosSin operator()(int64_t frames, int64_t rows, int64_t columns) const {
    Forward here(*this);
    if (std::max({frames, rows, columns}) > freqs_cos.size(0))
      throw Error("[wan] " + std::to_string(std::max({frames, rows, columns})) + " patches along an axis, but rope_max_seq_len is " +
                      std::to_string(freqs_cos.size(0)),
                  "use a smaller video");
    const Dims grid{1, checked_mul(checked_mul(frames, rows), columns), 1, freqs_cos.size(1)};
    const Tensor cosine = filled(tape(), "cat", grid, DType::float32);
    return {cosine, filled(tape(), "cat", grid, DType::float32)};
  }

  Tensor freqs_cos, freqs_sin;
};

struct WanTimeTextImageEmbedding : Module {
  WanTimeTextImageEmbedding(Module& parent, std::string_view name, const WanConfig& c) : Module(parent, name), config(c) {}

  struct Embeddings {
    Tensor temb, timestep_proj, text;  // (B, C), (B, 6 C), (B, T, C)
  };
  Embeddings operator()(const Tensor& time, const Tensor& text) const {
    Forward here(*this);
    Tensor timestep = timesteps_proj(time);
    timestep = to(timestep, time_embedder.linear_1.weight.dtype());
    const Tensor temb = to(time_embedder(timestep), text.dtype());
    const Tensor projected = time_proj(silu(temb));
    return {temb, projected, text_embedder(text)};
  }

  const WanConfig& config;
  Timesteps timesteps_proj{*this, "timesteps_proj", config.freq_dim};
  TimestepEmbedding time_embedder{*this, "time_embedder", config.freq_dim, config.width};
  Linear time_proj{*this, "time_proj", config.width, checked_mul(6, config.width)};
  TextProjection text_embedder{*this, "text_embedder", config.text_dim, config.width, true};
};

class WanTransformer3DModel : public Denoiser {
 public:
  WanTransformer3DModel(Module& parent, std::string_view name, const Config& config)
      : Denoiser(parent, name), config_(config), scale_shift_table_(parameter("scale_shift_table", {1, 2, config_.width})) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override {
    return video_latent_sizes("wan", samples, config_.in_channels, canvas, config_.patch);
  }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override {
    return video_latent_sizes("wan", samples, config_.out_channels, canvas, config_.patch);
  }

  // text states
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    return {{{samples, canvas.text_tokens ? canvas.text_tokens : 512, config_.text_dim}, dtype}};
  }

  Tensor predict(const Tensor& latents, const Tensor& time, const Tensors& c) override {
    Forward here(*this);
    const PatchSize& p = config_.patch;
    const int64_t frames = latents.size(2) / p.frames, rows = latents.size(3) / p.height, columns = latents.size(4) / p.width;
    const CosSin rotary = rope_(frames, rows, columns);
    Tensor hidden = patch_embedding_(latents);     // (B, C, F, H, W)
    hidden = transpose(flatten(hidden, 2), 1, 2);  // (B, S, C)
    hidden = contiguous(hidden);
    const WanTimeTextImageEmbedding::Embeddings e = condition_embedder_(time, c[0]);
    const Tensor timestep_proj = view(e.timestep_proj, {latents.size(0), 6, -1});
    for (WanTransformerBlock& block : blocks_) {
      const auto run = [&block, rotary](const Tensors& in) { return Tensors{block(in[0], in[1], in[2], rotary)}; };
      hidden = run_block(block, run, Tensors{hidden, e.text, timestep_proj})[0];
    }
    const Tensors part = chunk(add(scale_shift_table_, unsqueeze(e.temb, 1)), 2, 1);  // shift, scale: (B, 1, C)
    hidden = modulated(norm_out_, hidden, part[1], part[0]);
    hidden = proj_out_(hidden);
    hidden = view(hidden, {latents.size(0), frames, rows, columns, p.frames, p.height, p.width, -1});
    hidden = permute(hidden, {0, 7, 1, 4, 2, 5, 3, 6});
    return flatten(flatten(flatten(hidden, 6, 7), 4, 5), 2, 3);
  }

 private:
  Module& add_blocks() {
    for (int64_t i = 0; i < config_.num_layers; ++i) blocks_.add(config_);
    return *this;
  }

  WanConfig config_;
  Tensor scale_shift_table_;
  WanRotaryPosEmbed rope_{*this, "rope", config_};
  PatchConv3d patch_embedding_{*this, "patch_embedding", config_.in_channels, config_.width, config_.patch};
  WanTimeTextImageEmbedding condition_embedder_{*this, "condition_embedder", config_};
  ModuleList<WanTransformerBlock> blocks_{*this, "blocks"};
  FP32LayerNorm norm_out_{add_blocks(), "norm_out", config_.width, false};
  Linear proj_out_{*this, "proj_out", config_.width,
                   (config_.out_channels * config_.patch.frames * config_.patch.height * config_.patch.width)};
};

std::unique_ptr<Model> make_wan(Build& build, const Config& config) { return make_training_of<WanTransformer3DModel>(build, config); }

}  // namespace

const Family& wan_family() {
  static const Family kFamily{
      .name = "wan",
      .library = "diffusers",
      .models = {{"wan", {"WanTransformer3DModel"}, InputKind::own, 480, make_wan}},
      .presets = {{"wan2.1-1.3b", R"({"num_attention_heads":12,"ffn_dim":8960,"num_layers":30,"height":480,"width":832,"frames":81})", 480},
                  {"wan2.1-14b", R"({"height":480,"width":832,"frames":81})", 480}},
      .levers = {{"frames", 1, Shrink::half_the_frames, "{} frames instead of {}", "less time; shorter videos"}},
  };
  return kFamily;
}

}  // namespace plimsoll
