// PyTorch's allocator of pinned (page-locked) host memory: requests are rounded up to a power of two, and a freed block
// waits in the list of its size until empty_cache. ATen/core/CachingHostAllocator.h; the same from 1.13 on.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "allocator/alloc_conf.h"

namespace plimsoll {

struct PinnedStats {
  int64_t requested = 0, allocated = 0, reserved = 0;  // bytes asked for, in blocks in use, held from the system
  int64_t peak_allocated = 0, peak_reserved = 0;
};

class PinnedHostAllocator {
 public:
  explicit PinnedHostAllocator(const AllocConf& conf = {});

  // A handle for free(); `bytes` >= 0, and 0 bytes take nothing.
  int64_t allocate(int64_t bytes);
  void free(int64_t handle);
  void empty_cache();  // torch._C._host_emptyCache()

  // What a request costs in RAM.
  int64_t rounded(int64_t bytes) const;
  const PinnedStats& stats() const { return stats_; }

 private:
  struct Block {
    int64_t size = 0, requested = 0;
    bool in_reserve = false;  // part of pinned_reserve_segment_size_mb, which is never given back
    bool used = false;
  };
  int64_t take(int64_t size);
  void hold(int64_t bytes);

  AllocConf conf_;
  int64_t reserve_left_ = 0;
  std::vector<Block> blocks_;
  std::array<std::vector<int64_t>, 64> free_;  // by ceil(log2(size)); oldest first
  PinnedStats stats_;
};

}  // namespace plimsoll
