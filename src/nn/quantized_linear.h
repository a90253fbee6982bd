// The weight of a linear layer as bitsandbytes stores it, and its product: packed to 4 bits (NF4, FP4) with scales, or int8 with
// scales (LLM.int8). The weight is frozen; only the gradient of the input exists.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

class QuantizedWeight {
 public:
  virtual ~QuantizedWeight() = default;
  virtual int bits() const = 0;
  virtual Tensor multiply(const Tensor& x, const Tensor& bias) const = 0;
  // In the type it was quantised from (4 bit) or in fp32 (8 bit): (out, in).
  virtual Tensor unpacked() const = 0;
};

}  // namespace plimsoll
