// A recorded run under PyTorch's caching allocator, with the settings it had or with others.
#pragma once

#include <optional>

#include "allocator/cuda_timeline.h"
#include "allocator/memory_curve.h"
#include "allocator/recorded_run.h"

namespace plimsoll {

// How a replay begins. `as_recorded`: every segment and block where it was, for the settings of the recording. `afresh`: what
// was in use is allocated anew, lowest address first, because other settings would have laid it out in another way.
enum class ReplayStart { as_recorded, afresh };

// An allocation that succeeded when it was recorded and fails now; the replay ends there.
struct ReplayOom {
  std::optional<uint32_t> entry;  // index into the recorded entries; none: what was there at the start does not fit
  int64_t bytes = 0;              // as requested
  OomNumbers numbers;
};

// Compared after every operation with what was recorded.
struct ReplayCheck {
  size_t placements = 0, placements_equal = 0;  // addresses of allocations
  size_t reserved_equal = 0, operations = 0;    // bytes held from the device
  std::optional<uint32_t> first_difference;     // entry
  bool equal() const { return !first_difference; }
};

struct SnapshotReplay {
  // CudaMoment::at_event is an index into RecordedRun::operations.
  CudaMoment at_allocated_peak, at_reserved_peak, start, end;
  int64_t allocated_peak = 0, reserved_peak = 0;  // of the recorded part, its start included
  int64_t retries = 0;
  int64_t ooms_repeated = 0, ooms_avoided = 0;  // of those in the recording
  std::optional<uint32_t> first_repeated;       // the entry
  std::optional<ReplayOom> oom;
  ReplayCheck check;  // only as_recorded

  bool runs_out() const { return oom || ooms_repeated > 0; }
};

SnapshotReplay replay_snapshot(const RecordedRun& run, const AllocConf& conf, const CudaDevice& device, ReplayStart start);

// The segments right after an operation (-1: at the start) of a replay as recorded; a block's storage is its number.
std::vector<PlacedSegment> layout_at(const RecordedRun& run, const AllocConf& conf, const CudaDevice& device, int64_t operation);

}  // namespace plimsoll
