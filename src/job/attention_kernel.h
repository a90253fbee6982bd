// Which implementation of attention a run uses. `automatic` is what CUDA takes for the types and mask at hand,
// `flash_attention_2` the library of that name through transformers; the others are PyTorch's and the models' own.
#pragma once

#include <cstdint>

namespace plimsoll {

enum class AttentionKernel : uint8_t { automatic, flash, efficient, math, eager, flash_attention_2 };

}  // namespace plimsoll
