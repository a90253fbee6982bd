// The first layer of vision transformers: an image becomes a sequence of patch vectors by one convolution.
#pragma once

#include "job/config.h"
#include "nn/module.h"

namespace plimsoll {

struct PatchConfig {
  // image_size and patch_size are one number or [height, width].
  PatchConfig(const Config& config, int64_t default_patch);
  int64_t image_h, image_w, patch_h, patch_w, num_channels;
  int64_t num_patches() const { return (image_h / patch_h) * (image_w / patch_w); }
};

struct PatchProjection : Module {
  PatchProjection(Module& parent, std::string_view name, const PatchConfig& c, int64_t width);
  Tensor operator()(const Tensor& pixel_values) const;  // (B, width, H / patch, W / patch)
  Tensor weight, bias;
};

struct PatchEmbeddings : Module {
  PatchEmbeddings(Module& parent, std::string_view name, const PatchConfig& c, int64_t width);
  Tensor operator()(const Tensor& pixel_values) const;  // (B, patches, width)
  PatchConfig config;
  PatchProjection projection;
};

}  // namespace plimsoll
