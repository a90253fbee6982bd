// torchvision's ShiftedWindowAttention (Swin Transformer) and ShiftedWindowAttentionV2: attention inside windows of a
// channels-last feature map, with a bias for every pair of positions in a window. The second version takes cosines with a
// learned scale instead of products, and makes the table of biases from coordinates.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

struct WindowSize {
  int64_t h, w;
};

struct WindowAttentionConfig {
  int64_t dim, num_heads;
  WindowSize window, shift;
  double attention_dropout = 0.0, dropout = 0.0;
  bool v2 = false;
};

class ShiftedWindowAttention : public Module {
 public:
  ShiftedWindowAttention(Module& parent, std::string_view name, const WindowAttentionConfig& config);
  Tensor operator()(const Tensor& x) const;  // (B, H, W, C)

 private:
  // nn.Sequential(Linear, ReLU in place, Linear) from coordinates to a bias for every head
  struct CoordinateMLP : Module {
    CoordinateMLP(Module& parent, std::string_view name, int64_t num_heads);
    Tensor operator()(const Tensor& x) const;
    Linear hidden, head;
  };

  Tensor relative_position_bias() const;
  Tensor bias_from_table(const Tensor& table) const;
  Tensor attend(const Tensor& input, const Tensor& bias) const;
  // `scale` is the caller's: Python keeps it until the attention returns.
  Tensor scores(Tensor& q, const Tensor& k, Tensor& scale) const;
  Tensor shift_mask(const Tensor& x, int64_t height, int64_t width) const;

  WindowAttentionConfig config_;
  Linear qkv_, proj_;
  Tensor relative_position_index_;
  Tensor relative_position_bias_table_;         // first version
  Tensor logit_scale_, relative_coords_table_;  // second version
  std::unique_ptr<CoordinateMLP> cpb_mlp_;
};

}  // namespace plimsoll
