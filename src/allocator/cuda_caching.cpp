#include "allocator/cuda_caching.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "util/checked.h"
#include "util/error.h"

namespace plimsoll {

namespace {

// c10/core/AllocatorConfig.h and CUDACachingAllocator.cpp, unchanged from 1.x to 2.11.
constexpr int64_t kMinBlock = 512;            // every size is a multiple of it
constexpr int64_t kMinLargeAlloc = 10 << 20;  // from here on a request gets its own segment,
constexpr int64_t kRoundLarge = 2 << 20;      // rounded up to this
constexpr int64_t kOneExabyte = int64_t{1} << 60;

constexpr int64_t kLargestDevice = int64_t{1} << 50;  // 1 PiB: beyond any device, and far from overflow
constexpr int64_t kAddressSpace = int64_t{1} << 62;

// The next multiple of (largest power of two below n) / divisions; a power of two stays.
int64_t round_to_division(int64_t n, int64_t divisions) {
  const uint64_t floor = std::bit_floor(static_cast<uint64_t>(n));
  if (floor == static_cast<uint64_t>(n)) return n;
  const int64_t step = static_cast<int64_t>(floor) / divisions;
  return step == 0 ? static_cast<int64_t>(floor) * 2 : round_up(n, step);
}

void check_device(const CudaDevice& d, const AllocConf& conf) {
  if (d.capacity <= 0 || d.capacity > kLargestDevice)
    throw Error(fmt::format("[device] a capacity of {} bytes is not possible", d.capacity),
                "give the device's memory in bytes, between 1 and 2^50");
  if (d.other < 0 || d.other > d.capacity)
    throw Error(fmt::format("[device] {} bytes in use by others do not fit in a capacity of {} bytes", d.other, d.capacity),
                "between 0 and the capacity");
  if (d.fraction && !(*d.fraction >= 0 && *d.fraction <= 1))
    throw Error(fmt::format("[device] Invalid fraction value: {}. Allowed range: 0~1", *d.fraction),
                "PyTorch refuses this memory fraction too");
  if (conf.async_backend)
    throw Error("[alloc_conf] backend:cudaMallocAsync is the driver's allocator, which is not simulated", "use backend:native");
}

}  // namespace

int64_t rounded_size(int64_t bytes, const AllocConf& conf) {
  if (bytes < kMinBlock) return kMinBlock;
  const int64_t divisions = conf.divisions_for(bytes);
  return divisions > 1 && bytes > kMinBlock * divisions ? round_to_division(bytes, divisions) : round_up(bytes, kMinBlock);
}

int64_t segment_size(int64_t rounded, const AllocConf& conf) {
  if (rounded <= kSmallSize) return kSmallSegment;
  return rounded < kMinLargeAlloc ? conf.large_segment_size : round_up(rounded, kRoundLarge);
}

CudaCachingAllocator::CudaCachingAllocator(const CudaDevice& device, const AllocConf& conf) : device_(device), conf_(conf) {
  check_device(device, conf);
  const double fraction = device.fraction.value_or(conf.memory_fraction);
  if (fraction < 1) allowed_ = static_cast<int64_t>(fraction * static_cast<double>(device.capacity));
}

CudaCachingAllocator::Request CudaCachingAllocator::request(int64_t bytes, int32_t stream) {
  const int64_t size = rounded_size(bytes, conf_);
  return {bytes, size, segment_size(size, conf_), stream, size <= kSmallSize ? &small_ : &large_};
}

CudaBlock* CudaCachingAllocator::allocate(int64_t bytes, int32_t stream) {
  if (bytes >= kOneExabyte) {
    oom_ = {bytes, device_.capacity, device_free(), stats_.allocated, stats_.reserved - stats_.allocated, allowed_, true};
    return nullptr;
  }
  process_events();
  const Request r = request(bytes, stream);
  CudaBlock* block = find_free(r);
  if (!block) {
    if (allowed_ && conf_.garbage_collection_threshold > 0) collect_garbage();
    block = take_segment(r, false);
  }
  if (!block && release_oversize(r)) block = take_segment(r, false);
  if (!block) {
    release_all();
    block = take_segment(r, true);
  }
  if (block) return hand_out(r, block);
  ++stats_.ooms;
  oom_ = {r.segment_size, device_.capacity, device_free(), stats_.allocated, stats_.reserved - stats_.allocated, allowed_, false};
  return nullptr;
}

// Best fit of this stream: the smallest block that is large enough, the lowest address among equals.
CudaBlock* CudaCachingAllocator::find_free(const Request& r) {
  BlockPool& pool = *r.pool;
  if (allowed_ && conf_.garbage_collection_threshold > 0) ++pool.searches;
  auto it = pool.free.lower_bound(r.stream, r.size);
  // Left from a time when expandable segments were on.
  while (!conf_.expandable_segments && it != pool.free.end() && it->stream == r.stream && it->block->is_expandable()) ++it;
  if (it == pool.free.end() || it->stream != r.stream) return nullptr;
  if (conf_.expandable_segments) it = skip_growing_end(pool, it);
  CudaBlock* block = it->block;
  const bool oversize_request = r.size >= conf_.max_split_size;
  if (!oversize_request && block->size >= conf_.max_split_size) return nullptr;
  if (oversize_request && block->size - r.size >= conf_.max_non_split_rounding) return nullptr;
  pool.free.erase(it);
  return block;
}

CudaBlock* CudaCachingAllocator::take_segment(const Request& r, bool retry) {
  if (retry) ++stats_.retries;
  if (allowed_ && stats_.reserved + r.segment_size > *allowed_) return nullptr;
  if (conf_.expandable_segments) return grow(r);
  if (r.segment_size > device_free()) return nullptr;
  CudaSegment& segment = new_segment(r.segment_size, 0);
  segment.ordinal = ++ordinals_;
  CudaBlock* block = blocks_.create();
  block->address = segment.base;
  block->size = segment.size;
  block->stream = r.stream;
  block->segment = &segment;
  block->pool = r.pool;
  segment.first = block;
  ++stats_.segments;
  taken(segment.base, segment.size);
  return block;
}

CudaSegment& CudaCachingAllocator::new_segment(int64_t size, int64_t page) {
  const int64_t base = next_address_.value_or(top_address_);
  next_address_.reset();
  if (base > kAddressSpace - size)
    throw Error(fmt::format("[device] the addresses are used up after {} segments", created_segments_), "a smaller capacity");
  top_address_ = std::max(top_address_, base + size);
  CudaSegment& segment = segments_[++created_segments_];
  segment = {created_segments_, 0, base, size, page, nullptr};
  return segment;
}

bool CudaCachingAllocator::should_split(const CudaBlock* block, int64_t size) const {
  const int64_t remaining = block->size - size;
  if (block->pool->small || conf_.expandable_segments) return remaining >= kMinBlock;
  return size < conf_.max_split_size && remaining > kSmallSize;
}

// Cuts `block` down to its first `size` bytes and returns the rest, which follows it and is in no set yet.
CudaBlock* CudaCachingAllocator::split_off(CudaBlock* block, int64_t size) {
  CudaBlock* rest = blocks_.create();
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->stream = block->stream;
  rest->segment = block->segment;
  rest->pool = block->pool;
  rest->mapped = block->mapped;
  rest->prev = block;
  rest->next = block->next;
  if (rest->next) rest->next->prev = rest;
  block->next = rest;
  block->size = size;
  return rest;
}

CudaBlock* CudaCachingAllocator::hand_out(const Request& r, CudaBlock* block) {
  const bool counts = !block->is_expandable(), was_split = block->is_split();
  if (should_split(block, r.size)) {
    CudaBlock* rest = split_off(block, r.size);
    rest->pool->add_free(rest);
    if (counts) stats_.inactive_split += was_split ? -block->size : rest->size;
  } else if (was_split && counts) {
    stats_.inactive_split -= block->size;
  }
  block->allocated = true;
  block->requested = r.bytes;
  stats_.allocated += block->size;
  stats_.active += block->size;
  stats_.requested += r.bytes;
  stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
  return block;
}

void CudaCachingAllocator::free(CudaBlock* block) {
  block->allocated = false;
  stats_.allocated -= block->size;
  if (block->stream_uses.empty()) return to_free_set(block);
  for (const int32_t stream : block->stream_uses) events_[stream].push_back(block);
  block->events = static_cast<int32_t>(block->stream_uses.size());
  block->stream_uses.clear();
}

int64_t CudaCachingAllocator::request_free(CudaBlock* block) {
  block->allocated = false;
  block->events = 1;
  stats_.allocated -= block->size;
  waiting_.emplace(++tickets_, block);
  return tickets_;
}

void CudaCachingAllocator::complete_free(int64_t ticket) {
  const auto it = waiting_.find(ticket);
  if (it == waiting_.end()) return;
  it->second->events = 0;
  to_free_set(it->second);
  waiting_.erase(it);
}

void CudaCachingAllocator::record_stream(CudaBlock* block, int32_t stream) {
  if (stream == block->stream || std::count(block->stream_uses.begin(), block->stream_uses.end(), stream)) return;
  block->stream_uses.push_back(stream);
}

void CudaCachingAllocator::to_free_set(CudaBlock* block) {
  stats_.active -= block->size;
  stats_.requested -= block->requested;
  block->requested = 0;
  const int64_t joined = merge(block, block->prev) + merge(block, block->next);
  block->pool->add_free(block);
  if (!block->is_expandable()) stats_.inactive_split += (block->is_split() ? block->size : 0) - joined;
}

// Joins a free neighbour of the same kind (mapped or not) into `block`; returns its size, 0 if it stays.
int64_t CudaCachingAllocator::merge(CudaBlock* block, CudaBlock* neighbour) {
  if (!neighbour || !neighbour->is_free() || neighbour->mapped != block->mapped) return 0;
  (neighbour->mapped ? neighbour->pool->free : neighbour->pool->unmapped).erase(neighbour);
  const int64_t size = neighbour->size;
  if (block->prev == neighbour) {
    block->address = neighbour->address;
    block->prev = neighbour->prev;
    (block->prev ? block->prev->next : block->segment->first) = block;
  } else {
    block->next = neighbour->next;
    if (block->next) block->next->prev = block;
  }
  block->size += size;
  blocks_.destroy(neighbour);
  return size;
}

void CudaCachingAllocator::process_events() {
  if (!events_pending_ && !events_.empty()) complete_events();
}

void CudaCachingAllocator::complete_all() {
  complete_events();
  while (!waiting_.empty()) complete_free(waiting_.begin()->first);
}

void CudaCachingAllocator::complete_events() {
  for (auto& [stream, blocks] : events_)
    for (CudaBlock* block : blocks)
      if (--block->events == 0) to_free_set(block);
  events_.clear();
}

void CudaCachingAllocator::reset_peak() {
  stats_.peak_allocated = stats_.allocated;
  stats_.peak_reserved = stats_.reserved;
}

void CudaCachingAllocator::taken(int64_t address, int64_t bytes) {
  stats_.reserved += bytes;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  device_events_.push_back({address, bytes});
}

void CudaCachingAllocator::given_back(int64_t address, int64_t bytes) {
  stats_.reserved -= bytes;
  device_events_.push_back({address, -bytes});
}

}  // namespace plimsoll
