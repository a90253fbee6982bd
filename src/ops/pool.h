// Pooling over the last two dimensions of (N, C, H, W).
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor adaptive_avg_pool2d(const Tensor& x, int64_t out_h, int64_t out_w);

}  // namespace plimsoll
