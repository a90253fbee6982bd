// Which implementation of attention a run uses; `automatic` is what CUDA takes for the types and mask at hand.
#pragma once

#include <cstdint>

namespace plimsoll {

enum class AttentionKernel : uint8_t { automatic, flash, efficient, math, eager };

}  // namespace plimsoll
