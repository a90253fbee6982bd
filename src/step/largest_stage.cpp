#include "step/largest_stage.h"

#include <algorithm>
#include <mutex>

#include "util/checked.h"
#include "util/parallel.h"

namespace plimsoll {

namespace {

// In blocks of the caching allocator.
int64_t peak_in_blocks(const Trace& trace) {
  constexpr int64_t kBlock = 512;
  int64_t now = 0, most = 0;
  for (const Event& e : trace.events) {
    if (e.kind == Event::Kind::alloc) most = std::max(most, now += round_up(trace.storages[e.storage].bytes, kBlock));
    if (e.kind == Event::Kind::free) now -= round_up(trace.storages[e.storage].bytes, kBlock);
  }
  return most;
}

}  // namespace

Simulation largest_stage(int64_t stages, bool wants_more, const std::function<Simulation(int64_t stage, bool whole)>& run) {
  std::mutex mutex;
  Simulation largest;
  int64_t largest_stage = -1, most = -1;
  parallel_for(static_cast<size_t>(stages), [&](size_t i) {
    const auto stage = static_cast<int64_t>(i);
    Simulation s = run(stage, false);
    const int64_t peak = peak_in_blocks(s.trace);
    const std::lock_guard lock(mutex);
    if (peak < most || (peak == most && stage > largest_stage)) return;
    largest = std::move(s), largest_stage = stage, most = peak;
  });
  return wants_more ? run(largest_stage, true) : std::move(largest);
}

}  // namespace plimsoll
