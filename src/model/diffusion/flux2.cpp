// diffusers Flux2Transformer2DModel: FLUX.2 dev and klein. Blocks of a kind share one modulation, and those of one stream compute
// attention and feed-forward side by side.
#include "model/family.h"
#include "nn/ada_norm.h"
#include "nn/denoiser.h"
#include "nn/diffusers_attention.h"
#include "nn/diffusers_rotary.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kFlux2PixelsPerToken = 16;  // the VAE makes one latent of 8 x 8, and 2 x 2 of them are channels of a token

struct Flux2Config {
  explicit Flux2Config(const Config& c)
      : patch_size(c.size({"patch_size"}, 1)),
        in_channels(c.size({"in_channels"}, 128)),
        out_channels(c.size({"out_channels"}, in_channels)),
        num_layers(c.size({"num_layers"}, 8)),
        num_single_layers(c.size({"num_single_layers"}, 48)),
        heads(c.size({"num_attention_heads"}, 48)),
        head_dim(c.size({"attention_head_dim"}, 128)),
        width(checked_mul(heads, head_dim)),
        joint_attention_dim(c.size({"joint_attention_dim"}, 15360)),
        timestep_guidance_channels(c.size({"timestep_guidance_channels"}, 256)),
        inner(static_cast<int64_t>(c.number({"mlp_ratio"}, 3.0) * static_cast<double>(width))),
        guidance_embeds(c.flag({"guidance_embeds"}, true)),
        axes_dims_rope(sizes_in(c, "axes_dims_rope", {32, 32, 32, 32})) {
    require_rotary_axes(c, "axes_dims_rope", axes_dims_rope, "attention_head_dim", head_dim);
    if (inner < 1) throw Error("[" + c.source() + "] mlp_ratio leaves no feed-forward", "the published networks have 3.0");
  }
  int64_t patch_size, in_channels, out_channels, num_layers, num_single_layers, heads, head_dim, width, joint_attention_dim,
      timestep_guidance_channels, inner;
  bool guidance_embeds;
  std::vector<int64_t> axes_dims_rope;
};

// Flux2SwiGLU: (..., 2 F) -> (..., F)
Tensor gated_halves(const Tensor& x) {
  const int64_t half = x.size(-1) / 2;
  const Tensor gate = silu(slice(x, -1, 0, half));
  return mul(gate, slice(x, -1, half, x.size(-1)));
}

// (1 + scale) * normed + shift, the scale first
Tensor flux2_modulated(const LayerNorm& norm, const Tensor& x, const Tensor& scale, const Tensor& shift) {
  const Tensor normed = norm(x);  // Python's name keeps it to the end of the expression
  Tensor scaled;
  {
    const Tensor factor = add_scalar(scale);
    scaled = mul(factor, normed);
  }
  return add(scaled, shift);
}

struct Flux2FeedForward : Module {
  Flux2FeedForward(Module& parent, std::string_view name, const Flux2Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor x = linear_in(input);  // (B, T, 2 F)
    x = gated_halves(x);
    x = linear_out(x);
    return x;  // (B, T, C)
  }

  const Flux2Config& config;
  Linear linear_in{*this, "linear_in", config.width, checked_mul(2, config.inner), false};
  Linear linear_out{*this, "linear_out", config.inner, config.width, false};
};

struct Flux2Attention : Module {
  Flux2Attention(Module& parent, std::string_view name, const Flux2Config& c)
      : Module(parent, name),
        config(c),
        head_dim(c.head_dim),
        norm_added_q((to_out.add(c.width, c.width, false), *this), "norm_added_q", c.head_dim) {}

  // {image, text}
  Tensors operator()(const Tensor& hidden_in, const Tensor& encoder_in, const CosSin& rotary) {
    Forward here(*this);
    Tensor query = to_q(hidden_in), key = to_k(hidden_in), value = to_v(hidden_in);  // (B, S, C)
    Tensor encoder_query = add_q_proj(encoder_in), encoder_key = add_k_proj(encoder_in), encoder_value = add_v_proj(encoder_in);
    query = unflatten_heads(query, head_dim);  // (B, S, H, D)
    key = unflatten_heads(key, head_dim);
    value = unflatten_heads(value, head_dim);
    query = norm_q(query);
    key = norm_k(key);
    encoder_query = unflatten_heads(encoder_query, head_dim);  // (B, T, H, D)
    encoder_key = unflatten_heads(encoder_key, head_dim);
    encoder_value = unflatten_heads(encoder_value, head_dim);
    encoder_query = norm_added_q(encoder_query);
    encoder_key = norm_added_k(encoder_key);
    query = cat({encoder_query, query}, 1);  // (B, T + S, H, D)
    key = cat({encoder_key, key}, 1);
    value = cat({encoder_value, value}, 1);
    query = apply_rotary_emb(query, rotary);
    key = apply_rotary_emb(key, rotary);
    Tensor hidden = dispatch_attention(query, key, value);  // (B, T + S, H, D)
    hidden = flatten(hidden, 2, 3);
    hidden = to(hidden, query.dtype());
    const Tensors stream = split(hidden, {encoder_in.size(1), hidden.size(1) - encoder_in.size(1)}, 1);
    const Tensor encoder = to_add_out(stream[0]);  // (B, T, C)
    hidden = to_out[0](stream[1]);                 // (B, S, C)
    return {hidden, encoder};
  }

  const Flux2Config& config;
  int64_t head_dim;
  Linear to_q{*this, "to_q", config.width, config.width, false};
  Linear to_k{*this, "to_k", config.width, config.width, false};
  Linear to_v{*this, "to_v", config.width, config.width, false};
  FusedRMSNorm norm_q{*this, "norm_q", config.head_dim};
  FusedRMSNorm norm_k{*this, "norm_k", config.head_dim};
  ModuleList<Linear> to_out{*this, "to_out"};
  FusedRMSNorm norm_added_q;
  FusedRMSNorm norm_added_k{*this, "norm_added_k", config.head_dim};
  Linear add_q_proj{*this, "add_q_proj", config.width, config.width, false};
  Linear add_k_proj{*this, "add_k_proj", config.width, config.width, false};
  Linear add_v_proj{*this, "add_v_proj", config.width, config.width, false};
  Linear to_add_out{*this, "to_add_out", config.width, config.width, false};
};

struct Flux2TransformerBlock : Module {
  Flux2TransformerBlock(Module& parent, std::string_view name, const Flux2Config& c) : Module(parent, name), config(c) {}

  // mod_image, mod_text: (B, 1, 6 C) of shift, scale and gate, twice. Returns {text, image}.
  Tensors operator()(const Tensor& hidden_in, const Tensor& encoder_in, const Tensor& mod_image, const Tensor& mod_text,
                     const CosSin& rotary) {
    Forward here(*this);
    const Tensors image = chunk(unsqueeze(mod_image, 1), 6, -1), text = chunk(unsqueeze(mod_text, 1), 6, -1);
    Tensor normed = flux2_modulated(norm1, hidden_in, image[1], image[0]);                 // (B, S, C)
    Tensor normed_encoder = flux2_modulated(norm1_context, encoder_in, text[1], text[0]);  // (B, T, C)
    const Tensors attended = attn(normed, normed_encoder, rotary);

    const Tensor attn_output = mul(image[2], attended[0]);
    Tensor hidden = add(hidden_in, attn_output);
    normed = norm2(hidden);
    normed = scale_and_shift(normed, image[4], image[3]);
    const Tensor ff_output = ff(normed);
    {
      const Tensor gated = mul(image[5], ff_output);
      hidden = add(hidden, gated);
    }
    const Tensor context_attn_output = mul(text[2], attended[1]);
    Tensor encoder = add(encoder_in, context_attn_output);
    normed_encoder = norm2_context(encoder);
    normed_encoder = scale_and_shift(normed_encoder, text[4], text[3]);
    const Tensor context_ff_output = ff_context(normed_encoder);
    {
      const Tensor gated = mul(text[5], context_ff_output);
      encoder = add(encoder, gated);
    }
    if (encoder.dtype() == DType::float16) encoder = clamp(encoder);
    return {encoder, hidden};
  }

  const Flux2Config& config;
  LayerNorm norm1{*this, "norm1", config.width, false};
  LayerNorm norm1_context{*this, "norm1_context", config.width, false};
  Flux2Attention attn{*this, "attn", config};
  LayerNorm norm2{*this, "norm2", config.width, false};
  Flux2FeedForward ff{*this, "ff", config};
  LayerNorm norm2_context{*this, "norm2_context", config.width, false};
  Flux2FeedForward ff_context{*this, "ff_context", config};
};

struct Flux2ParallelSelfAttention : Module {
  Flux2ParallelSelfAttention(Module& parent, std::string_view name, const Flux2Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const CosSin& rotary) const {
    Forward here(*this);
    Tensor hidden = to_qkv_mlp_proj(x);  // (B, T, 3 C + 2 F)
    const Tensors parts = split(hidden, {3 * config.width, 2 * config.inner}, -1);
    const Tensors qkv = chunk(parts[0], 3, -1);
    Tensor query = norm_q(unflatten_heads(qkv[0], config.head_dim));  // (B, T, H, D)
    Tensor key = norm_k(unflatten_heads(qkv[1], config.head_dim));
    const Tensor value = unflatten_heads(qkv[2], config.head_dim);
    query = apply_rotary_emb(query, rotary);
    key = apply_rotary_emb(key, rotary);
    hidden = dispatch_attention(query, key, value);
    hidden = flatten(hidden, 2, 3);
    hidden = to(hidden, query.dtype());
    const Tensor mlp_hidden = gated_halves(parts[1]);  // (B, T, F)
    hidden = cat({hidden, mlp_hidden}, -1);
    hidden = to_out(hidden);
    return hidden;  // (B, T, C)
  }

  const Flux2Config& config;
  Linear to_qkv_mlp_proj{*this, "to_qkv_mlp_proj", config.width, checked_add(checked_mul(3, config.width), checked_mul(2, config.inner)),
                         false};
  FusedRMSNorm norm_q{*this, "norm_q", config.head_dim};
  FusedRMSNorm norm_k{*this, "norm_k", config.head_dim};
  Linear to_out{*this, "to_out", checked_add(config.width, config.inner), config.width, false};
};

struct Flux2SingleTransformerBlock : Module {
  Flux2SingleTransformerBlock(Module& parent, std::string_view name, const Flux2Config& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& x, const Tensor& mod, const CosSin& rotary) const {
    Forward here(*this);
    const Tensors part = chunk(unsqueeze(mod, 1), 3, -1);  // shift, scale, gate
    const Tensor normed = flux2_modulated(norm, x, part[1], part[0]);
    const Tensor attn_output = attn(normed, rotary);
    Tensor hidden;
    {
      const Tensor gated = mul(part[2], attn_output);
      hidden = add(x, gated);
    }
    if (hidden.dtype() == DType::float16) hidden = clamp(hidden);
    return hidden;
  }

  const Flux2Config& config;
  LayerNorm norm{*this, "norm", config.width, false};
  Flux2ParallelSelfAttention attn{*this, "attn", config};
};

// TimestepEmbedding without biases
struct Flux2TimeEmbedder : Module {
  Flux2TimeEmbedder(Module& parent, std::string_view name, const Flux2Config& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    Tensor sample = linear_1(x);  // (B, C)
    sample = silu(sample);
    sample = linear_2(sample);
    return sample;
  }
  const Flux2Config& config;
  Linear linear_1{*this, "linear_1", config.timestep_guidance_channels, config.width, false};
  Linear linear_2{*this, "linear_2", config.width, config.width, false};
};

// AdaLayerNormContinuous without a bias
struct Flux2NormOut : Module {
  Flux2NormOut(Module& parent, std::string_view name, int64_t width)
      : Module(parent, name), linear(*this, "linear", width, checked_mul(2, width), false), norm(*this, "norm", width, false) {}
  Tensor operator()(const Tensor& x, const Tensor& temb) const {
    Forward here(*this);
    const Tensor emb = linear(to(silu(temb), x.dtype()));  // (B, 2 C)
    const Tensors part = chunk(emb, 2, 1);                 // scale, shift
    return modulate(norm(x), part[0], part[1]);
  }
  Linear linear;
  LayerNorm norm;
};

struct Flux2TimestepGuidanceEmbeddings : Module {
  Flux2TimestepGuidanceEmbeddings(Module& parent, std::string_view name, const Flux2Config& c) : Module(parent, name), config(c) {
    if (c.guidance_embeds) guidance_embedder = std::make_unique<Flux2TimeEmbedder>(*this, "guidance_embedder", c);
  }

  Tensor operator()(const Tensor& timestep, const Tensor& guidance) const {
    Forward here(*this);
    const Tensor timesteps_proj = time_proj(timestep);
    const Tensor timesteps_emb = timestep_embedder(to(timesteps_proj, timestep.dtype()));  // (B, C)
    if (!guidance_embedder) return timesteps_emb;
    const Tensor guidance_proj = time_proj(guidance);
    const Tensor guidance_emb = (*guidance_embedder)(to(guidance_proj, guidance.dtype()));
    return add(timesteps_emb, guidance_emb);
  }

  const Flux2Config& config;
  Timesteps time_proj{*this, "time_proj", config.timestep_guidance_channels};
  Flux2TimeEmbedder timestep_embedder{*this, "timestep_embedder", config};
  std::unique_ptr<Flux2TimeEmbedder> guidance_embedder;
};

struct Flux2Modulation : Module {
  Flux2Modulation(Module& parent, std::string_view name, int64_t width, int64_t sets)
      : Module(parent, name), linear(*this, "linear", width, checked_mul(3 * sets, width), false) {}
  Tensor operator()(const Tensor& temb) const {
    Forward here(*this);
    Tensor mod = silu(temb);
    mod = linear(mod);
    return mod;  // (B, 3 sets C)
  }
  Linear linear;
};

class Flux2Transformer2DModel : public Denoiser {
 public:
  Flux2Transformer2DModel(Module& parent, std::string_view name, const Config& config) : Denoiser(parent, name), config_(config) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override { return {samples, image_tokens(canvas), config_.in_channels}; }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override { return {samples, image_tokens(canvas), proj_out_.out}; }

  // text states, positions of text and image, guidance
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 512, axes = static_cast<int64_t>(config_.axes_dims_rope.size());
    Conditions out{{{samples, text, config_.joint_attention_dim}, dtype},
                   {{text, axes}, dtype, Condition::Kind::positions},
                   {{image_tokens(canvas), axes}, dtype, Condition::Kind::positions}};
    if (config_.guidance_embeds) out.push_back({{samples}, DType::float32, Condition::Kind::guidance});
    return out;
  }

  Tensor predict(const Tensor& latents, const Tensor& time, const Tensors& c) override {
    Forward here(*this);
    const Tensor timestep = mul_scalar(to(time, latents.dtype()));
    const Tensor guidance = config_.guidance_embeds ? mul_scalar(to(c[3], latents.dtype())) : Tensor();
    const Tensor temb = time_guidance_embed_(timestep, guidance);  // (B, C)
    const Tensor mod_image = double_stream_modulation_img_(temb), mod_text = double_stream_modulation_txt_(temb);
    const Tensor mod_single = single_stream_modulation_(temb);
    Tensor hidden = x_embedder_(latents), encoder = context_embedder_(c[0]);  // (B, S, C), (B, T, C)
    const CosSin of_image = pos_embed_(c[2]), of_text = pos_embed_(c[1]);
    const Tensor cosine = cat({of_text.cos, of_image.cos}, 0);  // (T + S, D)
    const CosSin rotary{cosine, cat({of_text.sin, of_image.sin}, 0)};
    for (Flux2TransformerBlock& block : transformer_blocks_) {
      const auto run = [&block, rotary](const Tensors& in) { return block(in[0], in[1], in[2], in[3], rotary); };
      Tensors out = run_block(block, run, Tensors{hidden, encoder, mod_image, mod_text});
      encoder = std::move(out[0]);
      hidden = std::move(out[1]);
    }
    hidden = cat({encoder, hidden}, 1);  // (B, T + S, C)
    for (Flux2SingleTransformerBlock& block : single_transformer_blocks_) {
      const auto run = [&block, rotary](const Tensors& in) -> Tensors { return {block(in[0], in[1], rotary)}; };
      hidden = run_block(block, run, Tensors{hidden, mod_single})[0];
    }
    hidden = slice(hidden, 1, encoder.size(1), hidden.size(1));
    hidden = norm_out_(hidden, temb);
    return proj_out_(hidden);  // (B, S, patches)
  }

 private:
  Module& add_blocks() {
    for (int64_t i = 0; i < config_.num_layers; ++i) transformer_blocks_.add(config_);
    return *this;
  }
  Module& add_single_blocks() {
    for (int64_t i = 0; i < config_.num_single_layers; ++i) single_transformer_blocks_.add(config_);
    return *this;
  }
  static int64_t image_tokens(const Canvas& c) {
    return checked_mul(tokens_along("flux2", "height", c.height, kFlux2PixelsPerToken),
                       tokens_along("flux2", "width", c.width, kFlux2PixelsPerToken));
  }

  Flux2Config config_;
  FluxPosEmbed pos_embed_{*this, "pos_embed", config_.axes_dims_rope};
  Flux2TimestepGuidanceEmbeddings time_guidance_embed_{*this, "time_guidance_embed", config_};
  Flux2Modulation double_stream_modulation_img_{*this, "double_stream_modulation_img", config_.width, 2};
  Flux2Modulation double_stream_modulation_txt_{*this, "double_stream_modulation_txt", config_.width, 2};
  Flux2Modulation single_stream_modulation_{*this, "single_stream_modulation", config_.width, 1};
  Linear x_embedder_{*this, "x_embedder", config_.in_channels, config_.width, false};
  Linear context_embedder_{*this, "context_embedder", config_.joint_attention_dim, config_.width, false};
  ModuleList<Flux2TransformerBlock> transformer_blocks_{*this, "transformer_blocks"};
  ModuleList<Flux2SingleTransformerBlock> single_transformer_blocks_{add_blocks(), "single_transformer_blocks"};
  Flux2NormOut norm_out_{add_single_blocks(), "norm_out", config_.width};
  Linear proj_out_{*this, "proj_out", config_.width, checked_mul(checked_mul(config_.patch_size, config_.patch_size), config_.out_channels),
                   false};
};

std::unique_ptr<Model> make_flux2(Build& build, const Config& config) { return make_training_of<Flux2Transformer2DModel>(build, config); }

}  // namespace

const Family& flux2_family() {
  static const Family kFamily{
      .name = "flux2",
      .library = "diffusers",
      .models = {{"flux2", {"Flux2Transformer2DModel"}, InputKind::own, 1024, make_flux2}},
      .presets = {{"flux.2-dev", R"({})", 1024},
                  {"flux.2-klein-4b",
                   R"({"num_layers":5,"num_single_layers":20,"num_attention_heads":24,"joint_attention_dim":7680,"guidance_embeds":false})",
                   1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
