// Convolution in two and three dimensions. Workspaces inside a kernel (cuDNN's) are not tensors and are not seen here.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

struct Conv2dArgs {
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1, groups = 1;
};

// x: (N, C, H, W), weight: (O, C / groups, kh, kw), bias: (O) or undefined.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dArgs& args);

// Patches of a video: the kernel is its own stride. x: (N, C, F, H, W), weight: (O, C, kf, kh, kw).
Tensor patch_conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace plimsoll
