// One device of a PyTorch memory snapshot as an allocator can replay it: the state when the recording began, found by walking
// back from the final one, and every operation since. The recorder is a ring buffer, so what happened before is hidden.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/cuda_caching.h"
#include "trace/snapshot.h"
#include "trace/trace.h"

namespace plimsoll {

struct RecordedOperation {
  enum class Kind : uint8_t {
    alloc,
    free,
    request_free,   // the first half of a free that waits for other streams,
    complete_free,  // and the second
    empty_cache,
    oom  // an allocation that failed
  };
  Kind kind = Kind::alloc;
  int32_t stream = 0;
  uint32_t block = 0;  // alloc and frees: blocks count from 0, those of the start first
  uint32_t entry = 0;  // index into the recorded entries
  int64_t bytes = 0;   // alloc, oom: as requested

  // What the recording says of it.
  int64_t address = 0;                // alloc
  std::optional<int64_t> segment_at;  // alloc: where the segment lies that was taken for it
  int64_t reserved = 0;               // bytes held from the device right after
};

// How much memory PyTorch could have had, from where allocations failed and where they did not.
struct RecordedLimit {
  int64_t least = 0;  // what it held at most
  int64_t most = 0;   // where it failed; equal to `taken` when the file says what was free
  int64_t taken = 0;
};

struct RecordedRun {
  int device = 0;
  std::vector<CudaStartSegment> start;  // their blocks are numbered in this order
  std::vector<bool> start_waiting;      // by block: freed before the recording, waiting for other streams
  std::vector<RecordedOperation> operations;
  uint32_t blocks = 0;  // how many there are
  size_t entries = 0;
  int64_t microseconds = 0;  // from the first entry to the last; 0: no times recorded
  int streams = 0;
  int private_pools = 0;  // of captured graphs and MemPools; their memory is kept apart as other streams' is

  // What the recording says.
  int64_t start_allocated = 0, start_reserved = 0;
  int64_t end_allocated = 0, end_reserved = 0, end_segments = 0;
  int64_t reserved_peak = 0;
  int64_t retries = 0, ooms = 0, empty_caches = 0;
  std::optional<RecordedLimit> limit;
  size_t left_out = 0;  // entries that do not fit the state they were recorded in
  std::optional<uint32_t> first_left_out;
  size_t unknown_actions = 0;

  bool nothing_recorded() const { return operations.empty(); }
  bool from_the_beginning() const { return !nothing_recorded() && start.empty(); }
};

// The device with the most entries, or with the most memory when none has any.
int busiest_device(const Snapshot& snapshot);
// Every device that the snapshot has something of.
std::vector<int> devices_of(const Snapshot& snapshot);

// `conf`: the settings it was recorded under. Throws Error for a device that the snapshot has nothing of.
RecordedRun recorded_run(const Snapshot& snapshot, int device, const AllocConf& conf);

// Only what was allocated and freed, for allocators that know nothing of streams and addresses. What was there at the start
// comes first, and then a step begins.
Trace trace_of(const RecordedRun& run);

}  // namespace plimsoll
