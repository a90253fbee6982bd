// The allocator's segments and blocks as a memory snapshot shows them.
#pragma once

#include <string>
#include <vector>

#include "allocator/cuda_caching.h"

namespace plimsoll {

struct LayoutBlock {
  int64_t offset, size, requested;
  const char* state;  // "used", "waiting" (freed, events pending), "free"
};

// A plain segment, or a contiguous mapped part of an expandable range.
struct LayoutSegment {
  int64_t ordinal, offset, size;
  bool small;
  int32_t stream;
  std::vector<LayoutBlock> blocks;
};

// By ordinal, then offset.
std::vector<LayoutSegment> layout_of(const CudaCachingAllocator& allocator);

}  // namespace plimsoll
