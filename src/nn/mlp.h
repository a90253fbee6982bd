// torchvision.ops.MLP with two layers, as its vision transformers use it: linear, GELU, dropout, linear, dropout.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

struct MLP : Module {
  MLP(Module& parent, std::string_view name, int64_t width, int64_t inner, double dropout);
  Tensor operator()(const Tensor& x) const;  // (..., width)

 private:
  Linear linear1_;
  Dropout dropout1_;
  Linear linear2_;
  Dropout dropout2_;
};

}  // namespace plimsoll
