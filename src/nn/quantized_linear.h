// The weight of a linear layer as bitsandbytes stores it, and its product: packed to 4 bits (NF4, FP4) or in int8 (LLM.int8),
// with scales; as optimum-quanto does, in float8 with a scale for each row; as the AI Toolkit does (nn/uintx_linear.h); as GPTQ's
// checkpoints do; or cast to float8 without scales (sd-scripts). The weight is frozen; only the gradients of input and bias exist.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

class QuantizedWeight {
 public:
  virtual ~QuantizedWeight() = default;
  virtual int bits() const = 0;
  virtual bool has_own_adapter() const { return true; }  // PEFT has classes of LoRA for these, which cast nothing under autocast
  virtual bool is_cloned() const { return false; }       // PEFT clones the base's result
  virtual Tensor multiply(const Tensor& x, const Tensor& bias) const = 0;
  // (out, in): in the type it was quantised from (4 bit), or in fp32 (int8).
  virtual Tensor unpacked() const = 0;
};

// What a weight of (out, in) became; the scales are made with QuantizedWeight.
struct PackedWeight {
  int64_t out = 0, in = 0;
  DType dtype = DType::float32;  // of the weight before
  Tensor packed;                 // the parameter
};

// A layer of so many inputs is quantised; some kinds leave others as they are.
bool can_quantize(const QuantizationSettings& settings, int64_t in);
// Sizes of the parameter that holds a weight of (out, in).
Dims packed_sizes(const QuantizationSettings& settings, int64_t out, int64_t in);
DType packed_dtype(const QuantizationSettings& settings);
std::unique_ptr<QuantizedWeight> make_quantized_weight(Build& build, const QuantizationSettings& settings, const PackedWeight& weight);

}  // namespace plimsoll
