// diffusers' PatchEmbed: latents of an image become tokens with positions, and tokens become latents again.
#pragma once

#include "nn/denoiser.h"
#include "nn/vision.h"

namespace plimsoll {

struct PatchEmbedSizes {
  int64_t sample_size = 0;  // side of the latents that positions are stored for
  int64_t patch = 2, channels = 4, width = 0;
  int64_t max_size = 0;  // side of a table of positions, in patches, that others are cut out of; 0: positions are made for other sizes
};

// sample_size, patch_size and in_channels of a configuration. Throws unless patches fill the stored side.
PatchEmbedSizes image_patches(const Config& config, int64_t width, int64_t default_sample_size);
// (samples, channels, h / 8, w / 8); throws when a patch would be cut
Dims image_latent_sizes(const char* model, int64_t samples, const Canvas& canvas, const PatchEmbedSizes& sizes);
// Without the second half of the channels, the learned variance, where there is one.
Tensor mean_of(const Tensor& prediction, int64_t channels);

struct PatchEmbed : Module {
  PatchEmbed(Module& parent, std::string_view name, const PatchEmbedSizes& sizes);
  Tensor operator()(const Tensor& latent) const;  // (B, C, H, W) -> (B, H / p * W / p, width)

 private:
  Tensor positions(int64_t height, int64_t width) const;
  Tensor cropped(int64_t height, int64_t width) const;
  Tensor made(int64_t height, int64_t width) const;
  PatchEmbedSizes sizes_;
  Conv2d proj_;
  Tensor pos_embed_;  // buffer, (1, positions, width)
};

// (B, rows * columns, p p C) -> (B, C, rows p, columns p)
Tensor unpatchify(Tensor tokens, int64_t rows, int64_t columns, int64_t patch);

}  // namespace plimsoll
