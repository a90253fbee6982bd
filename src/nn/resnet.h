// The convolutional trunk of torchvision's ResNet, ResNeXt and Wide ResNet, which classifiers and segmentation networks share, also
// those of OpenMMLab: three small convolutions at the start (ResNetV1c), channels shifted between frames (TSM).
#pragma once

#include "nn/vision.h"

namespace plimsoll {

struct ResNetOptions {
  bool bottleneck = true;
  int64_t layers[4] = {3, 4, 6, 3};
  int64_t groups = 1, width_per_group = 64;
  bool dilate[4] = {};         // replace_stride_with_dilation; the first layer has no stride
  bool deep_stem = false;      // ResNetV1c: three convolutions of 3 x 3 for the one of 7 x 7
  int64_t shift_segments = 0;  // TSM: frames of a video that follow each other in the batch; 0: nothing is shifted
  int64_t expansion() const { return bottleneck ? 4 : 1; }
};

// conv1 to layer4, as children of `parent` itself.
struct ResNetTrunk {
  ResNetTrunk(Module& parent, const ResNetOptions& options);
  Tensor stem(const Tensor& pixels) const;  // (N, 64, H / 4, W / 4)

  std::unique_ptr<Sequential> deep_stem;
  std::unique_ptr<Conv2d> conv1;
  std::unique_ptr<BatchNorm2d> bn1;
  Activation relu;
  MaxPool2d maxpool;
  Sequential layer1, layer2, layer3, layer4;
};

}  // namespace plimsoll
