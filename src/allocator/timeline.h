// What an allocator did with a trace: bytes over time, the peak of each step and phase, and what was alive at the peak.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "trace/stream.h"
#include "trace/trace.h"

namespace plimsoll {

using ByCategory = std::array<int64_t, kCategories>;
using ByPhase = std::array<int64_t, kPhases>;  // 0: nothing was allocated in that phase
using ByStream = std::array<int64_t, kStreams>;

struct StepPeak {
  int64_t bytes = 0;
  int64_t rounded = 0;    // every storage rounded up to the allocator's 512-byte block
  int64_t at_event = -1;  // index into Trace::events; -1: what was alive when the step began
  Phase phase = Phase::setup;
  ByCategory by_category{};
  ByPhase by_phase{};
  ByStream by_stream{};  // the most that each stream's pool had in use in this step
  // Pools share nothing, so that this much is reserved at least, once all of them have had their peak.
  int64_t pool_sum() const;
};

struct Timeline {
  std::vector<StepPeak> steps;
  size_t worst = 0;  // index of the step with the largest peak, the first of equals
  const StepPeak& peak() const { return steps[worst]; }
};

// The allocator that wastes nothing: the sum of what is alive.
Timeline ideal_timeline(const Trace& trace);

struct LiveStorage {
  StorageId id;
  Category category;
};
// Everything alive right after event `at_event` (or before the first event for -1), in order of birth.
std::vector<LiveStorage> alive_at(const Trace& trace, int64_t at_event);

}  // namespace plimsoll
