#include "allocator/pinned_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "util/error.h"

namespace plimsoll {

namespace {

constexpr int64_t kReserveAlignment = 4096;  // PinnedReserveSegment in CachingHostAllocator.h
constexpr int64_t kLargestPinned = int64_t{1} << 60;

size_t list_of(int64_t size) { return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(size) - 1)); }

}  // namespace

PinnedHostAllocator::PinnedHostAllocator(const AllocConf& conf) : conf_(conf), reserve_left_(conf.pinned_reserve_segment) {
  if (reserve_left_ > kLargestPinned)
    throw Error(fmt::format("[pinned] a reserve of {} bytes is not possible", reserve_left_), "a smaller pinned_reserve_segment_size_mb");
  hold(reserve_left_);
}

int64_t PinnedHostAllocator::rounded(int64_t bytes) const {
  if (bytes < 0 || bytes > kLargestPinned) throw Error(fmt::format("[pinned] {} bytes cannot be pinned", bytes), "between 0 and 2^60");
  if (bytes == 0 || bytes > conf_.pinned_max_round_threshold || bytes > conf_.pinned_max_cached_size) return bytes;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
}

int64_t PinnedHostAllocator::allocate(int64_t bytes) {
  const int64_t size = rounded(bytes);
  if (size == 0) return -1;
  const int64_t handle = take(size);
  Block& block = blocks_[static_cast<size_t>(handle)];
  block.requested = bytes;
  block.used = true;
  stats_.requested += bytes;
  stats_.allocated += block.size;
  stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
  return handle;
}

// A cached block that is large enough (sizes in one list differ only above the round threshold), else a new one.
int64_t PinnedHostAllocator::take(int64_t size) {
  std::vector<int64_t>& list = free_[list_of(size)];
  const auto it = std::find_if(list.begin(), list.end(), [&](int64_t h) { return blocks_[static_cast<size_t>(h)].size >= size; });
  if (it != list.end()) {
    const int64_t handle = *it;
    list.erase(it);
    return handle;
  }
  const int64_t aligned = (size + kReserveAlignment - 1) / kReserveAlignment * kReserveAlignment;
  const bool in_reserve = aligned <= reserve_left_;
  if (in_reserve) {
    reserve_left_ -= aligned;
  } else {
    hold(size);
  }
  blocks_.push_back({size, 0, in_reserve, false});
  return static_cast<int64_t>(blocks_.size()) - 1;
}

void PinnedHostAllocator::free(int64_t handle) {
  if (handle == -1) return;
  if (handle < 0 || static_cast<size_t>(handle) >= blocks_.size() || !blocks_[static_cast<size_t>(handle)].used)
    throw Error(fmt::format("[pinned] {} is not an allocation", handle), "free each allocation once");
  Block& block = blocks_[static_cast<size_t>(handle)];
  block.used = false;
  stats_.requested -= block.requested;
  stats_.allocated -= block.size;
  if (block.size > conf_.pinned_max_cached_size) {
    if (!block.in_reserve) stats_.reserved -= block.size;
  } else {
    free_[list_of(block.size)].push_back(handle);
  }
}

void PinnedHostAllocator::empty_cache() {
  for (std::vector<int64_t>& list : free_) {
    for (const int64_t handle : list)
      if (!blocks_[static_cast<size_t>(handle)].in_reserve) stats_.reserved -= blocks_[static_cast<size_t>(handle)].size;
    list.clear();
  }
}

void PinnedHostAllocator::hold(int64_t bytes) {
  stats_.reserved += bytes;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
}

}  // namespace plimsoll
