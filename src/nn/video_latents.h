// What diffusers' video transformers share: sizes of a video's latents, patches by a convolution in three dimensions, and back.
#pragma once

#include "nn/denoiser.h"
#include "nn/layers.h"

namespace plimsoll {

struct PatchSize {
  int64_t frames = 1, height = 2, width = 2;
};

// (samples, channels, (f - 1) / 4 + 1, h / 8, w / 8): the VAE keeps the first frame and one of every four that follow. Throws when a
// patch would be cut.
Dims video_latent_sizes(const char* model, int64_t samples, int64_t channels, const Canvas& canvas, const PatchSize& patch);

// nn.Conv3d with its kernel as stride.
struct PatchConv3d : Module {
  PatchConv3d(Module& parent, std::string_view name, int64_t in, int64_t out, const PatchSize& patch);
  Tensor operator()(const Tensor& x) const;  // (B, C, F, H, W) -> (B, out, F / pf, H / ph, W / pw)
  Tensor weight, bias;
};

}  // namespace plimsoll
