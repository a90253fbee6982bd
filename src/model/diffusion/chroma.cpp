// diffusers ChromaTransformer2DModel: Flux with one small network that makes the modulation of all blocks.
#include "model/family.h"
#include "nn/denoiser.h"
#include "nn/flux_blocks.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kChromaPixelsPerToken = 16;

struct ChromaConfig {
  explicit ChromaConfig(const Config& c)
      : patch_size(c.size({"patch_size"}, 1)),
        in_channels(c.size({"in_channels"}, 64)),
        out_channels(c.size({"out_channels"}, in_channels)),
        num_layers(c.size({"num_layers"}, 19)),
        num_single_layers(c.size({"num_single_layers"}, 38)),
        joint_attention_dim(c.size({"joint_attention_dim"}, 4096)),
        axes_dims_rope(sizes_in(c, "axes_dims_rope", {16, 56, 56}, 3)),
        approximator_num_channels(c.size({"approximator_num_channels"}, 64)),
        approximator_hidden_dim(c.size({"approximator_hidden_dim"}, 5120)),
        approximator_layers(c.size({"approximator_layers"}, 5)),
        text_mask(c.flag({"text_mask"}, false)) {
    sizes.heads = c.size({"num_attention_heads"}, 24);
    sizes.head_dim = c.size({"attention_head_dim"}, 128);
    sizes.width = checked_mul(sizes.heads, sizes.head_dim);
    sizes.pruned = true;
    require_rotary_axes(c, "axes_dims_rope", axes_dims_rope, "attention_head_dim", sizes.head_dim);
    if (approximator_num_channels % 8 != 0)
      throw Error("[chroma] approximator_num_channels " + std::to_string(approximator_num_channels) + " is not a multiple of 8",
                  "a quarter is the time's, a quarter the guidance's, each in pairs");
  }
  int64_t modulations() const { return checked_add(checked_mul(3, num_single_layers), checked_mul(12, num_layers)) + 2; }
  int64_t patch_size, in_channels, out_channels, num_layers, num_single_layers, joint_attention_dim;
  std::vector<int64_t> axes_dims_rope;
  int64_t approximator_num_channels, approximator_hidden_dim, approximator_layers;
  bool text_mask;  // attention_mask is given, as diffusers' pipeline does
  FluxSizes sizes;
};

// ChromaCombinedTimestepTextProjEmbeddings: (B) -> (B, modulations, channels)
struct ModulationInput : Module {
  ModulationInput(Module& parent, std::string_view name, const ChromaConfig& c)
      : Module(parent, name),
        time_proj(*this, "time_proj", c.approximator_num_channels / 4),
        mod_proj(buffer("mod_proj", {c.modulations(), c.approximator_num_channels / 2})) {}

  Tensor operator()(const Tensor& timestep) const {
    Forward here(*this);
    const int64_t batch = timestep.size(0), modulations = mod_proj.size(0);
    const Tensor timesteps_proj = to(time_proj(timestep), timestep.dtype());
    // of zeros, on the host: only the result comes to the device
    const Tensor guidance_proj = filled(tape(), "_to_copy", timesteps_proj.sizes(), timestep.dtype());
    const Tensor mod = repeat(to(mod_proj, timestep.dtype()), {batch, modulations, mod_proj.size(1)});
    Tensor timestep_guidance;
    {
      const Tensor both = cat({timesteps_proj, guidance_proj}, 1);
      timestep_guidance = repeat(unsqueeze(both, 1), {batch, modulations, both.size(1)});
    }
    return cat({timestep_guidance, mod}, -1);
  }

  static Tensor repeat(const Tensor& x, const Dims& sizes) { return filled(x.tape(), "repeat", sizes, x.dtype()); }

  Timesteps time_proj;
  Tensor mod_proj;
};

struct ChromaApproximator : Module {
  ChromaApproximator(Module& parent, std::string_view name, const ChromaConfig& c)
      : Module(parent, name),
        config(c),
        norms(add_layers(c), "norms"),
        out_proj(add_norms(c), "out_proj", c.approximator_hidden_dim, c.sizes.width) {}

  Module& add_layers(const ChromaConfig& c) {
    for (int64_t i = 0; i < c.approximator_layers; ++i) layers.add(c.approximator_hidden_dim, c.approximator_hidden_dim);
    return *this;
  }
  Module& add_norms(const ChromaConfig& c) {
    for (int64_t i = 0; i < c.approximator_layers; ++i) norms.add(c.approximator_hidden_dim);
    return *this;
  }

  Tensor operator()(const Tensor& input) {
    Forward here(*this);
    Tensor x = in_proj(input);  // (B, modulations, hidden)
    for (size_t i = 0; i < layers.size(); ++i) {
      const Tensor change = layers[i](norms[i](x));
      x = add(x, change);
    }
    return out_proj(x);  // (B, modulations, C)
  }

  const ChromaConfig& config;
  Linear in_proj{*this, "in_proj", config.approximator_num_channels, config.approximator_hidden_dim};
  ModuleList<TextProjection> layers{*this, "layers"};
  ModuleList<FusedRMSNorm> norms;
  Linear out_proj;
};

class ChromaTransformer2DModel : public Denoiser {
 public:
  ChromaTransformer2DModel(Module& parent, std::string_view name, const Config& config) : Denoiser(parent, name), config_(config) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override { return {samples, image_tokens(canvas), config_.in_channels}; }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override { return {samples, image_tokens(canvas), proj_out_.out}; }

  // text states, positions of text and image, a mask of all tokens
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 512;
    Conditions out{{{samples, text, config_.joint_attention_dim}, dtype},
                   {{text, 3}, dtype, Condition::Kind::positions},
                   {{image_tokens(canvas), 3}, dtype, Condition::Kind::positions}};
    if (config_.text_mask) out.push_back({{samples, text + image_tokens(canvas)}, dtype});
    return out;
  }

  Tensor predict(const Tensor& latents, const Tensor& time, const Tensors& c) override {
    Forward here(*this);
    Tensor hidden = x_embedder_(latents);  // (B, S, C)
    const Tensor timestep = mul_scalar(to(time, hidden.dtype()));
    const Tensor input_vec = time_text_embed_(timestep);
    const Tensor pooled_temb = distilled_guidance_layer_(input_vec);  // (B, modulations, C)
    Tensor encoder = context_embedder_(c[0]);                         // (B, T, C)
    const Tensor ids = cat({c[1], c[2]}, 0);
    const CosSin rotary = pos_embed_(ids);
    const Tensor mask = config_.text_mask ? c[3] : Tensor();
    Tensor temb;
    int64_t at = 3 * config_.num_single_layers;
    for (FluxTransformerBlock& block : transformer_blocks_) {
      const int64_t text_at = at + 6 * config_.num_layers;
      temb = cat({slice(pooled_temb, 1, at, at + 6), slice(pooled_temb, 1, text_at, text_at + 6)}, 1);  // (B, 12, C)
      at += 6;
      const auto run = [&block, rotary, mask](const Tensors& in) { return block(in[0], in[1], in[2], rotary, mask); };
      Tensors out = run_block(block, run, Tensors{hidden, encoder, temb});
      encoder = std::move(out[0]);
      hidden = std::move(out[1]);
    }
    hidden = cat({encoder, hidden}, 1);  // (B, T + S, C)
    at = 0;
    for (FluxSingleTransformerBlock& block : single_transformer_blocks_) {
      temb = slice(pooled_temb, 1, at, at + 3);
      at += 3;
      const bool is_checkpointed = tape().grad_enabled && checkpoints(block, true);  // without the mask then
      const Tensor block_mask = is_checkpointed ? Tensor() : mask;
      const auto run = [&block, rotary, block_mask](const Tensors& in) { return Tensors{block(in[0], in[1], rotary, block_mask)}; };
      hidden = run_block(block, run, Tensors{hidden, temb})[0];
    }
    hidden = slice(hidden, 1, encoder.size(1), hidden.size(1));
    temb = slice(pooled_temb, 1, pooled_temb.size(1) - 2, pooled_temb.size(1));
    hidden = norm_out_(hidden, temb);
    return proj_out_(hidden);
  }

 private:
  Module& add_blocks() {
    for (int64_t i = 0; i < config_.num_layers; ++i) transformer_blocks_.add(config_.sizes);
    return *this;
  }
  Module& add_single_blocks() {
    for (int64_t i = 0; i < config_.num_single_layers; ++i) single_transformer_blocks_.add(config_.sizes);
    return *this;
  }

  static int64_t image_tokens(const Canvas& c) {
    return checked_mul(tokens_along("chroma", "height", c.height, kChromaPixelsPerToken),
                       tokens_along("chroma", "width", c.width, kChromaPixelsPerToken));
  }

  ChromaConfig config_;
  FluxPosEmbed pos_embed_{*this, "pos_embed", config_.axes_dims_rope};
  ModulationInput time_text_embed_{*this, "time_text_embed", config_};
  ChromaApproximator distilled_guidance_layer_{*this, "distilled_guidance_layer", config_};
  Linear context_embedder_{*this, "context_embedder", config_.joint_attention_dim, config_.sizes.width};
  Linear x_embedder_{*this, "x_embedder", config_.in_channels, config_.sizes.width};
  ModuleList<FluxTransformerBlock> transformer_blocks_{*this, "transformer_blocks"};
  ModuleList<FluxSingleTransformerBlock> single_transformer_blocks_{add_blocks(), "single_transformer_blocks"};
  AdaLayerNormContinuous norm_out_{add_single_blocks(), "norm_out", config_.sizes.width, config_.sizes.width, true};
  Linear proj_out_{*this, "proj_out", config_.sizes.width, (config_.patch_size * config_.patch_size * config_.out_channels)};
};

std::unique_ptr<Model> make_chroma(Build& build, const Config& config) { return make_training_of<ChromaTransformer2DModel>(build, config); }

}  // namespace

const Family& chroma_family() {
  static const Family kFamily{
      .name = "chroma",
      .library = "diffusers",
      .models = {{"chroma", {"ChromaTransformer2DModel"}, InputKind::own, 1024, make_chroma}},
      .presets = {{"chroma", R"({"text_mask":true})", 1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
