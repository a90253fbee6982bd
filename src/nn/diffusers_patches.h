// diffusers' PatchEmbed: latents of an image become tokens with positions, and tokens become latents again.
#pragma once

#include "nn/vision.h"

namespace plimsoll {

struct PatchEmbedSizes {
  int64_t sample_size = 0;  // side of the latents that positions are stored for
  int64_t patch = 2, channels = 4, width = 0;
  int64_t max_size = 0;  // side of a table of positions, in patches, that others are cut out of; 0: positions are made for other sizes
};

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
