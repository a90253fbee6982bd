#include "model/diffusion/toolkit_images.h"

#include "model/diffusion/causal_autoencoder.h"
#include "nn/autoencoder_kl.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

class ImageAutoencoder : public ImageEncoder {
 public:
  ImageAutoencoder(Module& parent, const Config& config) : vae_(parent, "vae", config) {
    channels = vae_.config.in_channels;
    latent_channels = vae_.config.latent_channels;
    scale = vae_.config.scale();
  }
  DType dtype() const override { return vae_.encoder.conv_in.weight.dtype(); }
  Tensor encode(const Tensor& images) override {
    const Tensor latents = vae_.encode(images).sample();
    const Tensor shifted = sub_scalar(latents);
    return mul_scalar(shifted);
  }

 private:
  AutoencoderKL vae_;
};

// An autoencoder of videos sees one frame; mean and deviation of each channel are brought to the device every time.
class VideoAutoencoder : public ImageEncoder {
 public:
  VideoAutoencoder(Module& parent, const Config& config) : vae_(parent, "vae", config) {
    channels = vae_.config.in_channels;
    latent_channels = vae_.config.z_dim;
    scale = vae_.config.scale();
  }
  DType dtype() const override { return vae_.quant_conv.weight.dtype(); }
  Tensor encode(const Tensor& images) override {
    const Tensor latents = vae_.encode(unsqueeze(images, 2)).sample();  // (N, z, 1, h, w)
    const Dims by_channel{1, latent_channels, 1, 1, 1};
    const Tensor mean = filled(latents.tape(), "_to_copy", by_channel, latents.dtype());
    Tensor deviation = filled(latents.tape(), "_to_copy", by_channel, latents.dtype());
    for (const char* op : {"reciprocal", "mul"}) deviation = nondiff(op, deviation, latents.dtype());
    const Tensor shifted = sub(latents, mean);
    return squeeze(mul(shifted, deviation), 2);
  }

 private:
  CausalAutoencoder vae_;
};

}  // namespace

std::unique_ptr<ImageEncoder> make_image_encoder(Module& parent, const TrainerConfig::Part& vae) {
  if (vae.entry->name == "autoencoder-kl") return std::make_unique<ImageAutoencoder>(parent, vae.config);
  return std::make_unique<VideoAutoencoder>(parent, vae.config);
}

}  // namespace plimsoll
