// expandable_segments:True. Each pool and stream has a range of virtual addresses (a new one when it is full), and memory
// is mapped into it page by page. A block is mapped (and free or in use) or unmapped; unmapped blocks are whole pages.
#include <algorithm>
#include <utility>

#include "allocator/cuda_caching.h"

namespace plimsoll {

namespace {

constexpr int64_t kSmallPage = 2 << 20;  // pages of the small pool; the large pool's are large_segment_size

// What the block can grow to without moving: itself and the unmapped block after it.
int64_t expandable_size(const CudaBlock* b) { return b->size + (b->next && !b->next->mapped ? b->next->size : 0); }

bool has_room(const CudaBlock* b, int64_t size) {
  int64_t room = 0;
  for (; room < size && b && b->is_free(); b = b->next) room += b->size;
  return room >= size;
}

}  // namespace

// Prefers a larger hole to a block that ends at unmapped space, because that one can still grow.
BlockSet::iterator CudaCachingAllocator::skip_growing_end(BlockPool& pool, BlockSet::iterator it) const {
  for (auto next = std::next(it);
       next != pool.free.end() && next->stream == it->stream && expandable_size(next->block) < expandable_size(it->block); ++next)
    it = next;
  return it;
}

// A free block of at least r.size, made by mapping pages; nullptr when the device has none left. What an earlier page of
// the same request mapped stays as a free block.
CudaBlock* CudaCachingAllocator::grow(const Request& r) {
  CudaBlock* block = find_room(r);
  if (!block->mapped && !map(block, std::min(block->size, r.size))) return nullptr;
  while (block->size < r.size) {
    CudaBlock* next = block->next;
    if (!map(next, std::min(r.size - block->size, next->size))) return nullptr;
    block = next;  // it took the one before it in
  }
  r.pool->free.erase(block);
  return block;
}

// The lowest address from which free and unmapped blocks in a row have r.size bytes.
CudaBlock* CudaCachingAllocator::find_room(const Request& r) {
  BlockSet& unmapped = r.pool->unmapped;
  for (auto it = unmapped.lower_bound(r.stream, 0); it != unmapped.end() && it->stream == r.stream; ++it) {
    CudaBlock* start = it->block;
    if (start->prev && start->prev->is_free()) start = start->prev;
    if (has_room(start, r.size)) return start;
  }
  return reserve_range(r);
}

int64_t CudaCachingAllocator::page_size(const BlockPool& pool) const { return pool.small ? kSmallPage : conf_.large_segment_size; }

// 1 1/8 of the device, in whole pages.
int64_t CudaCachingAllocator::range_span(int64_t page) const {
  const int64_t span = device_.capacity + device_.capacity / 8;
  return (span + page - 1) / page * page;
}

CudaBlock* CudaCachingAllocator::reserve_range(const Request& r) {
  const int64_t page = page_size(*r.pool);
  CudaSegment& range = new_segment(range_span(page), page);
  CudaBlock* block = blocks_.create();
  block->address = range.base;
  block->size = range.size;
  block->stream = r.stream;
  block->segment = &range;
  block->pool = r.pool;
  block->mapped = false;
  range.first = block;
  r.pool->unmapped.insert(block);
  return block;
}

// Maps the first pages of an unmapped block, enough for `size`, and joins them with free neighbours.
bool CudaCachingAllocator::map(CudaBlock* block, int64_t size) {
  CudaSegment& range = *block->segment;
  const int64_t bytes = (size + range.page - 1) / range.page * range.page;
  if (bytes > device_free()) return false;
  BlockPool& pool = *block->pool;
  pool.unmapped.erase(block);
  if (bytes < block->size) pool.unmapped.insert(split_off(block, bytes));
  block->mapped = true;
  if (range.ordinal == 0) range.ordinal = ++ordinals_;
  const int64_t address = block->address;
  stats_.segments += 1 - (block->prev && block->prev->mapped) - (block->next && block->next->mapped);
  merge(block, block->prev);
  merge(block, block->next);
  pool.add_free(block);
  taken(address, bytes);
  return true;
}

// Unmaps the whole pages inside a free block; what is left at either end stays free. A range with nothing left is dropped.
void CudaCachingAllocator::unmap(CudaBlock* block) {
  CudaSegment& range = *block->segment;
  const int64_t begin = (block->offset() + range.page - 1) / range.page * range.page;
  const int64_t end = (block->offset() + block->size) / range.page * range.page;
  if (begin >= end) return;
  BlockPool& pool = *block->pool;
  pool.free.erase(block);
  if (begin > block->offset()) {
    CudaBlock* before = std::exchange(block, split_off(block, begin - block->offset()));
    pool.add_free(before);
  }
  if (block->size > end - begin) pool.add_free(split_off(block, end - begin));
  stats_.segments += (block->prev && block->prev->mapped) + (block->next && block->next->mapped) - 1;
  block->mapped = false;
  given_back(block->address, end - begin);
  merge(block, block->prev);
  merge(block, block->next);
  if (block->is_split()) {
    pool.unmapped.insert(block);
  } else {
    segments_.erase(range.id);
    blocks_.destroy(block);
  }
}

}  // namespace plimsoll
