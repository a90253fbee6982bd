// diffusers Lumina2Transformer2DModel: text and image through refiners of their own, then together. Every caption is taken to fill its
// tokens.
#include "model/diffusion/lumina_blocks.h"
#include "model/family.h"
#include "nn/denoiser.h"
#include "ops/copy_slices.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct Lumina2RotaryPosEmbed : Module {
  Lumina2RotaryPosEmbed(Module& parent, std::string_view name, const LuminaConfig& c) : Module(parent, name), config(c) {}

  // Tables, made of positions in every forward, and the patches: (B, S, p p C)
  std::pair<LuminaRotary, Tensor> operator()(const Tensor& latents, const Tensor& mask) const {
    Forward here(*this);
    const int64_t patch = config.patches.patch, batch = latents.size(0);
    const int64_t rows = latents.size(2) / patch, columns = latents.size(3) / patch;
    require_lumina_positions("lumina2", config, mask.size(1), rows, columns);
    LuminaRotary rotary = lumina_rotary(tape(), config, batch, mask.size(1), rows, columns);
    Tensor hidden = view(latents, {batch, latents.size(1), rows, patch, columns, patch});
    hidden = flatten(flatten(permute(hidden, {0, 2, 4, 3, 5, 1}), 3), 1, 2);
    rotary.positions.clear();
    return {rotary, hidden};
  }

  const LuminaConfig& config;
};

class Lumina2Transformer2DModel : public Denoiser {
 public:
  Lumina2Transformer2DModel(Module& parent, std::string_view name, const Config& config)
      : Denoiser(parent, name),
        config_(config, "lumina2", "cap_feat_dim"),
        context_refiner_(add(noise_refiner_, config_.num_refiner_layers, true), "context_refiner"),
        layers_(add(context_refiner_, config_.num_refiner_layers, false), "layers"),
        norm_out_(add(layers_, config_.num_layers, true), "norm_out", config_) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override {
    return image_latent_sizes("lumina2", samples, canvas, config_.patches);
  }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override {
    Dims sizes = latent_sizes(samples, canvas);
    sizes[1] = config_.out_channels;
    return sizes;
  }

  // text states and their mask
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 256;
    return {{{samples, text, config_.text_width}, dtype}, {{samples, text}, DType::bool_}};
  }

  bool predicts_noise() const override { return false; }
  Tensors toolkit_times(const Tensor& timestep, DType) const override { return {rsub_scalar(div_scalar(timestep))}; }

  Tensor predict(const Tensor& latents, const Tensor& timestep, const Tensors& c) override {
    Forward here(*this);
    auto [temb, encoder] = time_caption_embed_(timestep, c[0], latents.dtype());  // encoder: (B, T, C)
    auto [rotary, hidden] = rope_embedder_(latents, c[1]);
    hidden = x_embedder_(hidden);  // (B, S, C)
    for (LuminaBlock& layer : context_refiner_) encoder = layer(encoder, c[1], rotary.text, {});
    for (LuminaBlock& layer : noise_refiner_) hidden = layer(hidden, {}, rotary.image, temb);
    const int64_t batch = latents.size(0), text = encoder.size(1), tokens = text + hidden.size(1);
    const Tensor mask = filled(tape(), "new_zeros", {batch, tokens}, DType::bool_);
    Tensor joint = filled(tape(), "new_zeros", {batch, tokens, config_.width}, hidden.dtype());
    for (int64_t i = 0; i < batch; ++i) {
      joint = copy_into_slice_(joint, select(encoder, 0, i));
      joint = copy_into_slice_(joint, select(hidden, 0, i));
    }
    hidden = joint;
    for (LuminaBlock& layer : layers_) {
      const auto run = [&layer, both = rotary.both](const Tensors& in) { return Tensors{layer(in[0], {}, both, in[1])}; };
      hidden = run_block(layer, run, Tensors{hidden, temb})[0];
    }
    hidden = norm_out_(hidden, temb);
    return lumina_images(hidden, config_, text, latents.size(2) / config_.patches.patch, latents.size(3) / config_.patches.patch);
  }

 private:
  Module& add(ModuleList<LuminaBlock>& list, int64_t n, bool modulation) {
    for (int64_t i = 0; i < n; ++i) list.add(config_, modulation);
    return *this;
  }

  LuminaConfig config_;
  Lumina2RotaryPosEmbed rope_embedder_{*this, "rope_embedder", config_};
  Linear x_embedder_{*this, "x_embedder", (config_.patches.patch * config_.patches.patch * config_.patches.channels), config_.width};
  LuminaTimeCaptionEmbedding time_caption_embed_{*this, "time_caption_embed", config_};
  ModuleList<LuminaBlock> noise_refiner_{*this, "noise_refiner"};
  ModuleList<LuminaBlock> context_refiner_, layers_;
  LuminaLastNorm norm_out_;
};

std::unique_ptr<Model> make_lumina2(Build& build, const Config& config) {
  return make_training_of<Lumina2Transformer2DModel>(build, config);
}

}  // namespace

const Family& lumina2_family() {
  static const Family kFamily{
      .name = "lumina2",
      .library = "diffusers",
      .models = {{"lumina2", {"Lumina2Transformer2DModel"}, InputKind::own, 1024, make_lumina2}},
      .presets = {{"lumina-2", R"({"cap_feat_dim":2304})", 1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
