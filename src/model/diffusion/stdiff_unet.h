// STDiff's denoiser: diffusers' UNet2DModel whose residual blocks are modulated by motion features (UNet2DMotionCond).
#pragma once

#include "nn/vision.h"

namespace plimsoll {

struct StdiffUnetOptions {
  struct Level {
    int64_t channels = 0;
    int64_t head_dim = 0;  // 0: one head
    bool down_attention = true, up_attention = true;
  };
  int64_t in_channels = 2, out_channels = 1;
  int64_t motion_channels = 256;
  int64_t layers_per_block = 2;
  int64_t norm_num_groups = 32;
  bool xformers = true;       // xformers' attention, or one that holds its scores
  std::vector<Level> levels;  // from full resolution down
};

class UNet2DMotionCond : public Module {
 public:
  UNet2DMotionCond(Module& parent, std::string_view name, const StdiffUnetOptions& options);
  ~UNet2DMotionCond() override;
  // sample: (B, in_channels, H, W), timestep: (B) int64, m_feat: (B, motion_channels, h, w) of any size. (B, out_channels, H, W)
  Tensor operator()(const Tensor& sample, const Tensor& timestep, const Tensor& m_feat);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace plimsoll
