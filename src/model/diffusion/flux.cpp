// diffusers FluxTransformer2DModel: Flux.1 dev, schnell and Kontext, Flex.
#include "model/family.h"
#include "nn/denoiser.h"
#include "nn/flux_blocks.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kFluxPixelsPerToken = 16;  // the VAE makes one latent of 8 x 8, and 2 x 2 of them are packed

struct FluxConfig {
  explicit FluxConfig(const Config& c)
      : patch_size(c.size({"patch_size"}, 1)),
        in_channels(c.size({"in_channels"}, 64)),
        out_channels(c.size({"out_channels"}, in_channels)),
        num_layers(c.size({"num_layers"}, 19)),
        num_single_layers(c.size({"num_single_layers"}, 38)),
        joint_attention_dim(c.size({"joint_attention_dim"}, 4096)),
        pooled_projection_dim(c.size({"pooled_projection_dim"}, 768)),
        guidance_embeds(c.flag({"guidance_embeds"}, false)),
        axes_dims_rope(sizes_in(c, "axes_dims_rope", {16, 56, 56}, 3)),
        reference_images(c.integer({"reference_images"}, 0)) {
    sizes.heads = c.size({"num_attention_heads"}, 24);
    sizes.head_dim = c.size({"attention_head_dim"}, 128);
    sizes.width = checked_mul(sizes.heads, sizes.head_dim);
    require_rotary_axes(c, "axes_dims_rope", axes_dims_rope, "attention_head_dim", sizes.head_dim);
    if (reference_images < 0) throw Error("[flux] reference_images " + std::to_string(reference_images), "give a number, 0 or more");
  }
  int64_t patch_size, in_channels, out_channels, num_layers, num_single_layers, joint_attention_dim, pooled_projection_dim;
  bool guidance_embeds;
  std::vector<int64_t> axes_dims_rope;
  int64_t reference_images;  // Kontext: images in the same sequence, whose prediction is dropped
  FluxSizes sizes;
};

class FluxTransformer2DModel : public Denoiser {
 public:
  FluxTransformer2DModel(Module& parent, std::string_view name, const Config& config) : Denoiser(parent, name), config_(config) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override {
    return {samples, checked_mul(image_tokens(canvas), 1 + config_.reference_images), config_.in_channels};
  }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override { return {samples, image_tokens(canvas), proj_out_.out}; }

  // text states, pooled text, positions of text and image, guidance
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 512;
    Conditions out{{{samples, text, config_.joint_attention_dim}, dtype},
                   {{samples, config_.pooled_projection_dim}, dtype},
                   {{text, 3}, dtype, Condition::Kind::positions},
                   {{latent_sizes(1, canvas)[1], 3}, dtype, Condition::Kind::positions}};
    if (config_.guidance_embeds) out.push_back({{samples}, DType::float32, Condition::Kind::guidance});
    generated_tokens_ = image_tokens(canvas);
    return out;
  }

  Tensor predict(const Tensor& latents, const Tensor& timestep, const Tensors& conditions) override {
    const Tensor output = (*this)(latents, timestep, conditions);
    return config_.reference_images ? slice(output, 1, 0, generated_tokens_) : output;
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
    return checked_mul(tokens_along("flux", "height", c.height, kFluxPixelsPerToken),
                       tokens_along("flux", "width", c.width, kFluxPixelsPerToken));
  }

  Tensor operator()(const Tensor& latents, const Tensor& time, const Tensors& c) {
    Forward here(*this);
    Tensor hidden = x_embedder_(latents);  // (B, S, C)
    const Tensor timestep = mul_scalar(to(time, hidden.dtype()));
    const Tensor guidance = config_.guidance_embeds ? mul_scalar(to(c[4], hidden.dtype())) : Tensor();
    const Tensor temb = time_text_embed_(timestep, guidance, c[1]);  // (B, C)
    Tensor encoder = context_embedder_(c[0]);                        // (B, T, C)
    const Tensor ids = cat({c[2], c[3]}, 0);                         // (T + S, 3)
    const CosSin rotary = pos_embed_(ids);
    for (FluxTransformerBlock& block : transformer_blocks_) {
      const auto run = [&block, rotary](const Tensors& in) { return block(in[0], in[1], in[2], rotary, {}); };
      Tensors out = run_block(block, run, Tensors{hidden, encoder, temb});
      encoder = std::move(out[0]);
      hidden = std::move(out[1]);
    }
    for (FluxSingleTransformerBlock& block : single_transformer_blocks_) {
      const auto run = [&block, rotary](const Tensors& in) { return on_both(block, in, rotary); };
      Tensors out = run_block(block, run, Tensors{hidden, encoder, temb});
      encoder = std::move(out[0]);
      hidden = std::move(out[1]);
    }
    hidden = norm_out_(hidden, temb);
    return proj_out_(hidden);  // (B, S, patches)
  }

  // The streams joined, and parted again.
  static Tensors on_both(FluxSingleTransformerBlock& block, const Tensors& in, const CosSin& rotary) {
    Forward here(block);
    const int64_t text = in[1].size(1);
    Tensor hidden = cat({in[1], in[0]}, 1);  // (B, T + S, C)
    hidden = block(hidden, in[2], rotary, {});
    return {slice(hidden, 1, 0, text), slice(hidden, 1, text, hidden.size(1))};
  }

  FluxConfig config_;
  int64_t generated_tokens_ = 0;
  FluxPosEmbed pos_embed_{*this, "pos_embed", config_.axes_dims_rope};
  TimestepTextEmbeddings time_text_embed_{*this, "time_text_embed", config_.sizes.width, config_.pooled_projection_dim,
                                          config_.guidance_embeds};
  Linear context_embedder_{*this, "context_embedder", config_.joint_attention_dim, config_.sizes.width};
  Linear x_embedder_{*this, "x_embedder", config_.in_channels, config_.sizes.width};
  ModuleList<FluxTransformerBlock> transformer_blocks_{*this, "transformer_blocks"};
  ModuleList<FluxSingleTransformerBlock> single_transformer_blocks_{add_blocks(), "single_transformer_blocks"};
  AdaLayerNormContinuous norm_out_{add_single_blocks(), "norm_out", config_.sizes.width, config_.sizes.width};
  Linear proj_out_{*this, "proj_out", config_.sizes.width, (config_.patch_size * config_.patch_size * config_.out_channels)};
};

std::unique_ptr<Model> make_flux(Build& build, const Config& config) { return make_training_of<FluxTransformer2DModel>(build, config); }

}  // namespace

const Family& flux_family() {
  static const Family kFamily{
      .name = "flux",
      .library = "diffusers",
      .models = {{"flux", {"FluxTransformer2DModel"}, InputKind::own, 1024, make_flux}},
      .presets = {{"flux-dev", R"({"guidance_embeds":true})", 1024},
                  {"flux-schnell", R"({})", 1024},
                  {"flux-kontext-dev", R"({"guidance_embeds":true,"reference_images":1})", 1024},
                  {"flex-1", R"({"num_layers":8,"guidance_embeds":true})", 1024},
                  {"flex-2", R"({"in_channels":196,"out_channels":64,"num_layers":8,"guidance_embeds":true})", 1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
