#include "allocator/cuda_layout.h"

#include <algorithm>

namespace plimsoll {

namespace {

const char* state_of(const CudaBlock& b) { return b.allocated ? "used" : b.is_free() ? "free" : "waiting"; }

void add_parts(const CudaSegment& segment, std::vector<LayoutSegment>& out) {
  bool open = false;
  for (const CudaBlock* b = segment.first; b; b = b->next) {
    if (b->mapped && !open) out.push_back({segment.ordinal, b->offset(), 0, b->pool->small, b->stream, {}});
    open = b->mapped;
    if (!open) continue;
    out.back().size += b->size;
    out.back().blocks.push_back({b->offset(), b->size, b->requested, state_of(*b)});
  }
}

}  // namespace

std::vector<LayoutSegment> layout_of(const CudaCachingAllocator& allocator) {
  std::vector<LayoutSegment> out;
  for (const auto& [id, segment] : allocator.segments()) add_parts(segment, out);
  std::stable_sort(out.begin(), out.end(), [](const LayoutSegment& a, const LayoutSegment& b) { return a.ordinal < b.ordinal; });
  return out;
}

}  // namespace plimsoll
