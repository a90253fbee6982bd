// OmniGen2Transformer2DModel as the AI Toolkit has it (omnigen2/src/models): text, image and reference images through refiners of their
// own, then together. Every caption is taken to fill its tokens. There are no reference images: their refiner works on none, and its
// weights get gradients of zeros all the same.
#include "model/diffusion/lumina_blocks.h"
#include "model/family.h"
#include "nn/denoiser.h"
#include "ops/copy_slices.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kReferenceImages = 5;  // that can be told apart

LuminaConfig omnigen2_config(const Config& config) {
  LuminaConfig c(config, "omnigen2", "text_feat_dim");
  c.omnigen2 = true;
  c.norm = config.flag({"triton"}, true) ? LuminaNormKind::triton : LuminaNormKind::torch;
  return c;
}

class OmniGen2Transformer2DModel : public Denoiser {
 public:
  OmniGen2Transformer2DModel(Module& parent, std::string_view name, const Config& config)
      : Denoiser(parent, name),
        config_(omnigen2_config(config)),
        image_index_embedding_(parameter("image_index_embedding", {kReferenceImages, config_.width})),
        ref_image_refiner_(add(noise_refiner_, config_.num_refiner_layers, true), "ref_image_refiner"),
        context_refiner_(add(ref_image_refiner_, config_.num_refiner_layers, true), "context_refiner"),
        layers_(add(context_refiner_, config_.num_refiner_layers, false), "layers"),
        norm_out_(add(layers_, config_.num_layers, true), "norm_out", config_) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override {
    return image_latent_sizes("omnigen2", samples, canvas, config_.patches);
  }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override {
    Dims sizes = latent_sizes(samples, canvas);
    sizes[1] = config_.out_channels;
    return sizes;
  }

  // text states and their mask
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 256;
    return {{{samples, text, config_.text_width}, dtype}, {{samples, text}, DType::int64}};
  }

  Tensors toolkit_times(const Tensor& timestep, DType dtype) const override {
    const Tensor scaled = to(timestep, dtype), timesteps = div_scalar(scaled);
    return {rsub_scalar(timesteps), timesteps};
  }

  Tensor predict(const Tensor& latents, const Tensor& timestep, const Tensors& c) override {
    Forward here(*this);
    const int64_t patch = config_.patches.patch, batch = latents.size(0), text = c[0].size(1);
    const int64_t rows = latents.size(2) / patch, columns = latents.size(3) / patch;
    require_lumina_positions("omnigen2", config_, text, rows, columns);
    auto [temb, encoder] = time_caption_embed_(timestep, c[0], latents.dtype());  // encoder: (B, T, C)
    auto [tokens, image_mask] = flat_and_pad_to_seq(latents);                     // (B, S, p p C), (B, S)
    LuminaRotary rotary = lumina_rotary(tape(), config_, batch, text, rows, columns);
    rotary.positions.clear();
    for (LuminaBlock& layer : context_refiner_) encoder = layer(encoder, c[1], rotary.text, {});
    const Tensor combined = embed_and_refine(tokens, image_mask, rotary.image, temb);  // (B, S, C)
    const Tensor mask = filled(tape(), "new_zeros", {batch, text + rows * columns}, DType::bool_);
    Tensor hidden = filled(tape(), "new_zeros", {batch, mask.size(1), config_.width}, tokens.dtype());
    for (int64_t i = 0; i < batch; ++i) {
      hidden = copy_into_slice_(hidden, select(encoder, 0, i));
      hidden = copy_into_slice_(hidden, select(combined, 0, i));
    }
    tokens.reset();  // hidden_states is another now
    for (LuminaBlock& layer : layers_) {
      const auto run = [&layer, mask, freqs = rotary.both](const Tensors& in) { return Tensors{layer(in[0], mask, freqs, in[1])}; };
      hidden = run_block(layer, run, Tensors{hidden, temb})[0];
    }
    hidden = norm_out_(hidden, temb);
    return lumina_images(hidden, config_, text, rows, columns);
  }

 private:
  Module& add(ModuleList<LuminaBlock>& list, int64_t n, bool modulation) {
    for (int64_t i = 0; i < n; ++i) list.add(config_, modulation);
    return *this;
  }

  int64_t token_width() const { return checked_mul(checked_mul(config_.patches.patch, config_.patches.patch), config_.patches.channels); }

  // Patches of every image, then all of them in one tensor; and their mask.
  std::pair<Tensor, Tensor> flat_and_pad_to_seq(const Tensor& latents) const {
    const int64_t patch = config_.patches.patch, rows = latents.size(2) / patch, columns = latents.size(3) / patch;
    Tensors flat;
    for (int64_t i = 0; i < latents.size(0); ++i) {
      const Tensor image = view(select(latents, 0, i), {latents.size(1), rows, patch, columns, patch});
      flat.push_back(reshape(permute(image, {1, 3, 2, 4, 0}), {rows * columns, token_width()}));
    }
    const Tensor padded = filled(tape(), "zeros", {latents.size(0), rows * columns, token_width()}, latents.dtype());
    return {padded, filled(tape(), "zeros", {latents.size(0), rows * columns}, DType::bool_)};
  }

  // img_patch_embed_and_refine
  Tensor embed_and_refine(const Tensor& tokens, const Tensor& mask, const Tensor& freqs, const Tensor& temb) {
    const int64_t batch = tokens.size(0), width = config_.width;
    Tensor hidden = x_embedder_(tokens);
    Tensor references = ref_image_patch_embedder_(filled(tape(), "zeros", {batch, 0, token_width()}, tokens.dtype()));  // (B, 0, C)
    for (int64_t i = 0; i < batch; ++i)
      references = copy_into_slice_(references, plimsoll::add(no_tokens(references, i), select(image_index_embedding_, 0, 0)));
    for (LuminaBlock& layer : noise_refiner_) hidden = layer(hidden, mask, freqs, temb);
    references = refine(references, temb);
    Tensor combined = filled(tape(), "new_zeros", {batch, hidden.size(1), width}, hidden.dtype());
    for (int64_t i = 0; i < batch; ++i) {
      combined = copy_into_slice_(combined, select(references, 0, i));
      combined = copy_into_slice_(combined, select(hidden, 0, i));
    }
    return combined;
  }

  // As if each sample had one image of no tokens.
  Tensor refine(Tensor references, const Tensor& temb) {
    const int64_t batch = references.size(0);
    const Tensor mask = filled(tape(), "new_zeros", {batch, 0}, DType::bool_);
    Tensor images = filled(tape(), "new_zeros", references.sizes(), references.dtype());
    const Tensor freqs = filled(tape(), "new_zeros", {batch, 0, config_.head_dim}, DType::float64);
    Tensor batch_temb = filled(tape(), "new_zeros", temb.sizes(), temb.dtype());
    for (int64_t i = 0; i < batch; ++i) {
      images = copy_into_slice_(images, no_tokens(references, i));
      batch_temb = copy_into_slice_(batch_temb, select(temb, 0, i));
    }
    for (LuminaBlock& layer : ref_image_refiner_) images = layer(images, mask, freqs, batch_temb);
    for (int64_t i = 0; i < batch; ++i) references = copy_into_slice_(references, no_tokens(images, i));
    return references;
  }

  static Tensor no_tokens(const Tensor& x, int64_t sample) { return slice(select(x, 0, sample), 0, 0, 0); }

  LuminaConfig config_;
  Tensor image_index_embedding_;  // (5, C)
  Linear x_embedder_{*this, "x_embedder", token_width(), config_.width};
  Linear ref_image_patch_embedder_{*this, "ref_image_patch_embedder", token_width(), config_.width};
  LuminaTimeCaptionEmbedding time_caption_embed_{*this, "time_caption_embed", config_};
  ModuleList<LuminaBlock> noise_refiner_{*this, "noise_refiner"};
  ModuleList<LuminaBlock> ref_image_refiner_, context_refiner_, layers_;
  LuminaLastNorm norm_out_;
};

std::unique_ptr<Model> make_omnigen2(Build& build, const Config& config) {
  return make_training_of<OmniGen2Transformer2DModel>(build, config);
}

}  // namespace

const Family& omnigen2_family() {
  static const Family kFamily{
      .name = "omnigen2",
      .library = "the AI Toolkit",
      .models = {{"omnigen2", {"OmniGen2Transformer2DModel"}, InputKind::own, 1024, make_omnigen2}},
      .presets =
          {{"omnigen2",
            R"({"hidden_size":2520,"num_layers":32,"num_attention_heads":21,"num_kv_heads":7,"axes_dim_rope":[40,40,40],"axes_lens":[1024,1664,1664],"text_feat_dim":2048})",
            1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
