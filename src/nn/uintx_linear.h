// The weight of a linear layer as the AI Toolkit's uint2 to uint7 store it (toolkit/util/uintx_quant.py, UIntXQuantizer): codes of so many
// bits, and for every 64 of a row a scale and a zero point. Each forward unpacks the weight whole and hands it to a plain linear, so
// that autograd keeps it for backward unless the block is checkpointed.
#pragma once

#include "nn/quantized_linear.h"

namespace plimsoll {

// 2 to 7, or 0: another kind of quantisation.
int uintx_bits(const QuantizationSettings& settings);
// Rows that are no multiple of 64 stay as they are.
bool takes_uintx(int64_t in);
int64_t uintx_bytes(int bits, int64_t out, int64_t in);
std::unique_ptr<QuantizedWeight> make_uintx_weight(Build& build, int bits, const PackedWeight& weight);

}  // namespace plimsoll
