// A trace under PyTorch's caching allocator: allocated and reserved peaks, segments and fragmentation, where ideal_timeline
// (timeline.h) has only the sum of what is alive.
#pragma once

#include <optional>
#include <vector>

#include "allocator/cuda_caching.h"
#include "trace/trace.h"

namespace plimsoll {

// The allocator right after an event.
struct CudaMoment {
  int64_t at_event = -1;  // index into Trace::events; -1: before the first
  int64_t allocated = 0, reserved = 0, requested = 0, inactive_split = 0, segments = 0;

  int64_t rounding() const { return allocated - requested; }      // blocks larger than asked for
  int64_t fragmentation() const { return reserved - allocated; }  // held from the device, in no tensor
};

struct CudaStepPeak {
  int64_t allocated = 0, reserved = 0;  // as if reset_peak_memory_stats() ran when the step began
};

struct CudaOom {
  int64_t at_event = -1;
  StorageId storage = 0;
  OomNumbers numbers;
};

struct CudaTimeline {
  std::vector<CudaStepPeak> steps;
  int64_t allocated_peak = 0;  // torch.cuda.max_memory_allocated()
  int64_t reserved_peak = 0;   // torch.cuda.max_memory_reserved()
  CudaMoment at_allocated_peak, at_reserved_peak, end;
  int64_t retries = 0;         // num_alloc_retries: the cache was emptied to make room
  std::optional<CudaOom> oom;  // the run ends there
};

// A device larger than any: nothing is ever released for lack of memory.
inline constexpr int64_t kBoundlessDevice = int64_t{1} << 50;

CudaTimeline cuda_timeline(const Trace& trace, const AllocConf& conf = {}, const CudaDevice& device = {kBoundlessDevice, 0, {}});

}  // namespace plimsoll
