// The root-mean-square norm of Olmo2 and GPT-OSS: scales in fp32, then returns to the type of x.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

struct Fp32RMSNorm : UnaryModule {
  Fp32RMSNorm(Module& parent, std::string_view name, int64_t width) : UnaryModule(parent, name) { weight = parameter("weight", {width}); }
  Tensor operator()(const Tensor& x) const override;
  Tensor weight;
};

}  // namespace plimsoll
