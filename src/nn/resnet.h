// The convolutional trunk of torchvision's ResNet, ResNeXt and Wide ResNet, which classifiers and segmentation networks share.
#pragma once

#include "nn/vision.h"

namespace plimsoll {

struct ResNetOptions {
  bool bottleneck = true;
  int64_t layers[4] = {3, 4, 6, 3};
  int64_t groups = 1, width_per_group = 64;
  bool dilate[4] = {};  // replace_stride_with_dilation; the first layer has no stride
  int64_t expansion() const { return bottleneck ? 4 : 1; }
};

// conv1 to layer4, as children of `parent` itself.
struct ResNetTrunk {
  ResNetTrunk(Module& parent, const ResNetOptions& options);
  Tensor stem(const Tensor& pixels) const;  // (N, 64, H / 4, W / 4)

  Conv2d conv1;
  BatchNorm2d bn1;
  Activation relu;
  MaxPool2d maxpool;
  Sequential layer1, layer2, layer3, layer4;
};

}  // namespace plimsoll
