// Interpolation of images.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// torch.nn.functional.interpolate(x, size, mode="bicubic") or "nearest". x: (N, C, H, W).
Tensor upsample_bicubic2d(const Tensor& x, int64_t height, int64_t width);
Tensor upsample_nearest2d(const Tensor& x, int64_t height, int64_t width);

}  // namespace plimsoll
