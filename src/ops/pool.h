// Pooling over the last two dimensions of (N, C, H, W).
#pragma once

#include "tensor/node.h"

namespace plimsoll {

struct Pool2dArgs {
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  bool ceil_mode = false;  // a last, partial window counts
};

Tensor max_pool2d(const Tensor& x, const Pool2dArgs& args);
Tensor avg_pool2d(const Tensor& x, const Pool2dArgs& args);
Tensor avg_pool1d(const Tensor& x, int64_t kernel);  // (N, C, L), windows side by side
Tensor adaptive_avg_pool2d(const Tensor& x, int64_t out_h, int64_t out_w);
Tensor adaptive_max_pool2d(const Tensor& x, int64_t out_h, int64_t out_w);

}  // namespace plimsoll
