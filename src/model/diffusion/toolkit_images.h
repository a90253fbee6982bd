// How a trainer of a denoiser makes latents of images: an autoencoder that is not trained.
#pragma once

#include <memory>

#include "model/diffusion/diffusion_trainer_config.h"
#include "nn/module.h"

namespace plimsoll {

class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;
  virtual Tensor encode(const Tensor& images) = 0;  // (N, C, H, W) -> (N, latent channels, h, w), scaled as the denoiser knows them
  virtual DType dtype() const = 0;
  int64_t channels = 3, latent_channels = 4, scale = 8;
};

std::unique_ptr<ImageEncoder> make_image_encoder(Module& parent, const TrainerConfig::Part& vae);

}  // namespace plimsoll
