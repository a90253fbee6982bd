// A trace as curves over its events: what is alive by category, what the caching allocator holds for it, and how that lies in
// segments at one moment. What charts are drawn from; nothing is rounded or left out.
#pragma once

#include <string>
#include <vector>

#include "allocator/cuda_layout.h"
#include "allocator/timeline.h"

namespace plimsoll {

// One category grows or shrinks. A relabelling is two: less of the old one, then more of the new.
struct MemoryChange {
  int64_t bytes = 0;
  StorageId storage = 0;
  Category category = Category::activation;
};

struct CurveMark {
  size_t at = 0;  // index into MemoryCurve::changes: what comes from there on
  bool step = false;
  Phase phase = Phase::setup;  // when it is not a step
};

struct ReservedPoint {
  size_t at = 0;  // changes done so far
  int64_t bytes = 0;
};

struct PlacedBlock {
  int64_t size = 0;
  StorageId storage = 0;
  bool used = false;
};
struct PlacedSegment {
  int64_t size = 0;
  bool small = false;
  std::vector<PlacedBlock> blocks;  // tile it, lowest address first
};

// An allocation of a recorded run that failed: it is no change.
struct FailedAllocation {
  size_t at = 0;  // changes done so far
  int64_t bytes = 0;
  std::string place;
};

struct MemoryCurve {
  std::vector<MemoryChange> changes;
  size_t begins = 0;  // changes that make up what was there before a recording
  std::vector<CurveMark> marks;
  std::vector<ReservedPoint> reserved;  // where it changes
  size_t peak = 0;                      // changes done at the moment that was asked for
  std::vector<PlacedSegment> segments;  // then
  std::vector<FailedAllocation> failures;
};

// `at_event`: the moment, an index into Trace::events. `allocator`: false for a run that PyTorch's does not serve; no segments then.
MemoryCurve memory_curve(const Trace& trace, int64_t at_event, const AllocConf& conf = {}, bool allocator = true);

// The segments of an allocator, each block with the number that `storage_of` gives to it.
template <class StorageOf>
std::vector<PlacedSegment> placed_segments(const CudaCachingAllocator& allocator, const StorageOf& storage_of) {
  std::vector<PlacedSegment> out;
  for (const auto& [id, segment] : allocator.segments()) {
    bool open = false;
    for (const CudaBlock* b = segment.first; b; b = b->next) {
      if (b->mapped && !open) out.push_back({0, b->pool->small, {}});
      open = b->mapped;
      if (!open) continue;
      out.back().size += b->size;
      out.back().blocks.push_back({b->size, b->allocated ? storage_of(b) : StorageId{0}, b->allocated});
    }
  }
  return out;
}

}  // namespace plimsoll
