// Giving memory back to the device: garbage collection by age, oversize blocks before a retry, everything.
#include <algorithm>

#include "allocator/cuda_caching.h"

namespace plimsoll {

// Frees unsplit blocks of the large pool that are at least as old (in searches) as the mean, again and again until the
// reserved bytes are down to threshold x allowed. A pass does not stop at the target.
void CudaCachingAllocator::collect_garbage() {
  const int64_t threshold = static_cast<int64_t>(conf_.garbage_collection_threshold * static_cast<double>(*allowed_));
  if (stats_.reserved <= threshold) return;
  const int64_t target = stats_.reserved - threshold;
  int64_t reclaimed = 0, total_age = 0, candidates = 0;
  const auto age = [&](const CudaBlock* b) { return large_.searches - b->freed_at; };
  for (const BlockKey& key : large_.free)
    if (!key.block->is_split()) {
      total_age += age(key.block);
      ++candidates;
    }
  for (bool freed = true; freed && reclaimed < target && candidates > 0;) {
    const double oldest = static_cast<double>(total_age) / static_cast<double>(candidates);
    freed = false;
    for (auto it = large_.free.begin(); it != large_.free.end();) {
      CudaBlock* block = (it++)->block;
      if (block->is_split() || block->is_expandable() || static_cast<double>(age(block)) < oldest) continue;
      freed = true;
      reclaimed += block->size;
      total_age -= age(block);
      --candidates;
      release_segment(block);
    }
  }
}

// With max_split_size set: one oversize block of this pool and stream that is large enough, else the largest ones until
// their sum is. False when the sum stays short (they are gone all the same). Oversize blocks are never split; in a state that
// was restored from a run under other settings they may be, and then stay.
bool CudaCachingAllocator::release_oversize(const Request& r) {
  if (conf_.max_split_size == kUnlimited) return false;
  BlockSet& free = r.pool->free;
  const auto is_whole = [](const CudaBlock* block) { return !block->is_expandable() && !block->is_split(); };
  const int64_t wanted = std::max(r.size, conf_.max_split_size);
  auto it = free.lower_bound(r.stream, wanted);
  if (it != free.end() && it->stream == r.stream && is_whole(it->block)) {
    release_segment(it->block);
    return true;
  }
  int64_t released = 0;
  while (it != free.begin() && released < wanted) {
    --it;
    if (it->stream != r.stream || it->size < conf_.max_split_size) break;
    if (!is_whole(it->block)) continue;
    CudaBlock* block = (it++)->block;
    released += block->size;
    release_segment(block);
  }
  return released >= wanted;
}

void CudaCachingAllocator::release_all() {
  complete_all();
  release_pool(large_);
  release_pool(small_);
}

void CudaCachingAllocator::release_pool(BlockPool& pool) {
  std::vector<CudaBlock*> expandable;
  for (auto it = pool.free.begin(); it != pool.free.end();) {
    CudaBlock* block = (it++)->block;
    if (block->is_expandable()) {
      expandable.push_back(block);
    } else if (!block->is_split()) {
      release_segment(block);
    }
  }
  for (CudaBlock* block : expandable) unmap(block);
}

// A plain segment, all of it free.
void CudaCachingAllocator::release_segment(CudaBlock* block) {
  block->pool->free.erase(block);
  given_back(block->address, block->size);
  --stats_.segments;
  segments_.erase(block->segment->id);
  blocks_.destroy(block);
}

}  // namespace plimsoll
