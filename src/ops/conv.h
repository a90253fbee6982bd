// Convolutions. Workspaces inside a kernel (cuDNN's) are not tensors and are not seen here.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

struct Conv2dArgs {
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1, groups = 1;
};

// x: (N, C, H, W), weight: (O, C / groups, kh, kw), bias: (O) or undefined.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dArgs& args);
// x: (N, C, H, W), weight: (C, O / groups, kh, kw), bias: (O) or undefined.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dArgs& args);

struct Conv1dArgs {
  int64_t stride = 1, padding = 0, groups = 1;
};

// x: (N, C, L), weight: (O, C / groups, k), bias: (O) or undefined.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dArgs& args);

// x: (N, C, F, H, W), weight: (O, C, kf, kh, kw); without padding.
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride);
// Patches of a video: the kernel is its own stride.
Tensor patch_conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace plimsoll
