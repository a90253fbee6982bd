// Beginning with a state that was found somewhere else: segments and blocks are put where they were, and the statistics with
// them, as if the allocator had made them itself.
#include <fmt/format.h>

#include <utility>

#include "allocator/cuda_caching.h"
#include "util/error.h"

namespace plimsoll {

// Where the blocks of each segment go in the answer, and the last block of the segment that is being laid out.
struct CudaCachingAllocator::Restoring {
  std::map<const CudaStartSegment*, size_t> first;
  std::vector<CudaBlock*> blocks;
  CudaBlock* last = nullptr;
};

std::vector<CudaBlock*> CudaCachingAllocator::restore(const std::vector<CudaStartSegment>& state) {
  Restoring to;
  size_t count = 0;
  std::map<std::pair<int32_t, bool>, std::vector<const CudaStartSegment*>> ranges;  // by stream and pool
  for (const CudaStartSegment& s : state) {
    to.first[&s] = std::exchange(count, count + s.blocks.size());
    if (s.expandable) ranges[{s.stream, s.small}].push_back(&s);
  }
  to.blocks.resize(count);
  for (const CudaStartSegment& s : state) {
    if (s.expandable) continue;
    next_segment_at(s.address);
    CudaSegment& segment = new_segment(s.size, 0);
    segment.ordinal = ++ordinals_;
    to.last = nullptr;
    restore_segment(s, to);
  }
  for (const auto& [key, parts] : ranges) restore_range(parts, to);
  reset_peak();
  clear_device_events();
  return std::move(to.blocks);
}

// Lays the blocks of `s`, and what is free between them, out at the end of the newest segment.
void CudaCachingAllocator::restore_segment(const CudaStartSegment& s, Restoring& to) {
  CudaSegment& segment = segments_.at(created_segments_);
  BlockPool& pool = s.small ? small_ : large_;
  int64_t at = s.address;
  const auto add = [&](int64_t size) {
    CudaBlock* block = blocks_.create();
    block->address = std::exchange(at, at + size);
    block->size = size;
    block->stream = s.stream;
    block->segment = &segment;
    block->pool = &pool;
    block->prev = to.last;
    (to.last ? to.last->next : segment.first) = block;
    return to.last = block;
  };
  const auto add_free = [&](int64_t size) {
    if (size == 0) return;
    pool.add_free(add(size));
    if (!s.expandable && size < s.size) stats_.inactive_split += size;
  };
  size_t i = to.first.at(&s);
  for (const CudaStartBlock& b : s.blocks) {
    add_free(b.address - at);
    CudaBlock* block = add(b.size);
    block->allocated = true;
    block->requested = b.requested;
    stats_.allocated += b.size;
    stats_.active += b.size;
    stats_.requested += b.requested;
    to.blocks[i++] = block;
  }
  add_free(s.address + s.size - at);
  ++stats_.segments;
  taken(s.address, s.size);
}

// Which mapped parts belong to one range of addresses is not recorded: those of one pool and stream that lie within the span
// of a range, whole pages apart, are taken to.
void CudaCachingAllocator::restore_range(const std::vector<const CudaStartSegment*>& parts, Restoring& to) {
  CudaSegment* range = nullptr;
  BlockPool& pool = parts[0]->small ? small_ : large_;
  const auto add_unmapped = [&](int64_t end) {
    const int64_t at = to.last ? to.last->address + to.last->size : range->base;
    if (at == end) return;
    CudaBlock* block = blocks_.create();
    block->address = at;
    block->size = end - at;
    block->stream = parts[0]->stream;
    block->segment = range;
    block->pool = &pool;
    block->mapped = false;
    block->prev = to.last;
    (to.last ? to.last->next : range->first) = block;
    to.last = block;
    pool.unmapped.insert(block);
  };
  for (const CudaStartSegment* s : parts) {
    const int64_t page = page_size(pool);
    if (s->size % page != 0)
      throw Error(fmt::format("[device] an expandable segment of {} bytes is not made of pages of {}", s->size, page),
                  "with which large_segment_size_mb was it recorded?");
    if (range && (s->address - range->base) % page == 0 && s->address + s->size <= range->base + range->size) {
      add_unmapped(s->address);
    } else {
      if (range) add_unmapped(range->base + range->size);
      next_segment_at(s->address);
      range = &new_segment(std::max(range_span(page), s->size), page);
      range->ordinal = ++ordinals_;
      to.last = nullptr;
    }
    restore_segment(*s, to);
  }
  add_unmapped(range->base + range->size);
}

}  // namespace plimsoll
