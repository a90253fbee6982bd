// What GoogLeNet and Inception v3 share: BasicConv2d, the re-normalised input, and networks with auxiliary heads.
#pragma once

#include "nn/vision.h"

namespace plimsoll {

// Convolution without bias, batch norm, ReLU in place.
struct BasicConv2d : Module {
  BasicConv2d(Module& parent, std::string_view name, int64_t in, int64_t out, Conv2dOptions options);
  Tensor operator()(const Tensor& input) const;
  Conv2d conv;
  BatchNorm2d bn;
};

// _transform_input: each channel scaled and shifted, then joined again.
Tensor transform_input(const Tensor& x);

// What of the constructors' arguments is common. Pretrained weights ask for the transformed input; whether they keep the
// auxiliary heads differs.
struct InceptionArguments {
  InceptionArguments(const Config& c, bool aux_logits_with_weights);
  int64_t num_classes;
  bool aux_logits, transform_input;
};

// A network whose loss is the sum of the cross-entropies of its logits and, scaled, of its auxiliary heads.
class AuxiliaryClassifier : public Model {
 public:
  using Model::Model;
  virtual Tensors operator()(const Tensor& pixels) = 0;  // the logits, then the heads that are on
  Output forward(const Batch& batch) override;
};

}  // namespace plimsoll
