// PyTorch's CUDA caching allocator over a device that is only a number: which segments it takes, where each block lands,
// what stays cached, when it retries and when it gives up. Semantics of PyTorch 2.11 (c10/cuda/CUDACachingAllocator.cpp);
// plain and expandable behaviour has been the same since 2.1. One device, no captured graphs, no private pools.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "allocator/alloc_conf.h"
#include "allocator/cuda_block.h"
#include "allocator/cuda_oom.h"

namespace plimsoll {

struct CudaDevice {
  int64_t capacity = 0;            // what cudaMemGetInfo calls total
  int64_t other = 0;               // in use by the context and by other processes
  std::optional<double> fraction;  // set_per_process_memory_fraction; wins over the setting of that name
};

struct CudaStats {
  int64_t allocated = 0, reserved = 0, active = 0, requested = 0, inactive_split = 0;  // bytes now
  int64_t segments = 0;  // as a memory snapshot counts them: with expandable segments, contiguous mapped ranges
  int64_t peak_allocated = 0, peak_reserved = 0;
  int64_t retries = 0, ooms = 0;  // num_alloc_retries, num_ooms
};

// What was taken from (+) or given back to (-) the device.
struct DeviceEvent {
  int64_t address = 0, bytes = 0;
};

// A state that the allocator can begin with. Blocks in use, lowest address first, all inside their segment; the rest of it
// is free. Segments lie apart, lowest address first. An expandable one is a contiguous mapped part of a range.
struct CudaStartBlock {
  int64_t address = 0, size = 0, requested = 0;
};
struct CudaStartSegment {
  int64_t address = 0, size = 0;
  int32_t stream = 0;
  bool small = false, expandable = false;
  std::vector<CudaStartBlock> blocks;
};

// What a request of `bytes` > 0 becomes, and the segment that a miss of that size takes from the device.
int64_t rounded_size(int64_t bytes, const AllocConf& conf);
int64_t segment_size(int64_t rounded, const AllocConf& conf);

class CudaCachingAllocator {
 public:
  // Throws Error for a capacity, a share or a fraction that no device has.
  CudaCachingAllocator(const CudaDevice& device, const AllocConf& conf);
  CudaCachingAllocator(const CudaCachingAllocator&) = delete;
  CudaCachingAllocator& operator=(const CudaCachingAllocator&) = delete;

  // The block that `bytes` > 0 got, or nullptr when out of memory; then last_oom() has the numbers of the message.
  CudaBlock* allocate(int64_t bytes, int32_t stream = 0);
  void free(CudaBlock* block);
  void record_stream(CudaBlock* block, int32_t stream);
  // A free in two steps, for a recorded run that has both: in between the block is active but not allocated. The second one
  // does nothing when a release of the cache has completed it already.
  int64_t request_free(CudaBlock* block);
  void complete_free(int64_t ticket);
  void set_events_pending(bool pending) { events_pending_ = pending; }
  void empty_cache() { release_all(); }
  void reset_peak();
  // The next segment (or expandable range) lies at this address instead of above all earlier ones.
  void next_segment_at(std::optional<int64_t> address) { next_address_ = address; }
  // Begins with this state, before anything else was done; returns its blocks in order. Throws Error for an expandable
  // segment that is not made of whole pages.
  std::vector<CudaBlock*> restore(const std::vector<CudaStartSegment>& state);

  const CudaStats& stats() const { return stats_; }
  const OomNumbers& last_oom() const { return oom_; }
  int64_t device_free() const { return device_.capacity - device_.other - stats_.reserved; }
  // Since clear_device_events(), in order.
  const std::vector<DeviceEvent>& device_events() const { return device_events_; }
  void clear_device_events() { device_events_.clear(); }
  const std::map<int64_t, CudaSegment>& segments() const { return segments_; }

 private:
  struct Request {
    int64_t bytes, size, segment_size;
    int32_t stream;
    BlockPool* pool;
  };

  // cuda_caching.cpp
  Request request(int64_t bytes, int32_t stream);
  CudaBlock* find_free(const Request& r);
  CudaBlock* take_segment(const Request& r, bool retry);
  CudaBlock* hand_out(const Request& r, CudaBlock* block);
  void to_free_set(CudaBlock* block);
  int64_t merge(CudaBlock* block, CudaBlock* neighbour);
  CudaBlock* split_off(CudaBlock* block, int64_t size);
  bool should_split(const CudaBlock* block, int64_t size) const;
  void process_events();
  void complete_events();
  void complete_all();
  CudaSegment& new_segment(int64_t size, int64_t page);
  void taken(int64_t address, int64_t bytes);
  void given_back(int64_t address, int64_t bytes);

  // cuda_restore.cpp
  struct Restoring;
  void restore_segment(const CudaStartSegment& segment, Restoring& to);
  void restore_range(const std::vector<const CudaStartSegment*>& parts, Restoring& to);

  // cuda_release.cpp
  void collect_garbage();
  bool release_oversize(const Request& r);
  void release_all();
  void release_pool(BlockPool& pool);
  void release_segment(CudaBlock* block);

  // cuda_expandable.cpp
  CudaBlock* grow(const Request& r);
  CudaBlock* find_room(const Request& r);
  CudaBlock* reserve_range(const Request& r);
  int64_t page_size(const BlockPool& pool) const;
  int64_t range_span(int64_t page) const;
  bool map(CudaBlock* block, int64_t size);
  void unmap(CudaBlock* block);
  BlockSet::iterator skip_growing_end(BlockPool& pool, BlockSet::iterator it) const;

  CudaDevice device_;
  AllocConf conf_;
  std::optional<int64_t> allowed_;
  BlockStore blocks_;
  BlockPool small_{true}, large_{false};
  std::map<int64_t, CudaSegment> segments_;  // by order of creation
  int64_t created_segments_ = 0, ordinals_ = 0;
  int64_t top_address_ = 0;
  std::optional<int64_t> next_address_;
  std::map<int32_t, std::deque<CudaBlock*>> events_;  // per recorded stream, in order of recording
  bool events_pending_ = false;
  std::map<int64_t, CudaBlock*> waiting_;  // by ticket of request_free
  int64_t tickets_ = 0;
  CudaStats stats_;
  OomNumbers oom_;
  std::vector<DeviceEvent> device_events_;
};

}  // namespace plimsoll
