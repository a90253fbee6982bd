#include "step/largest_stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "util/checked.h"

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

Simulation largest_stage(int64_t stages, const std::function<Simulation(int64_t stage)>& run) {
  Simulation largest;
  int64_t most = -1;
  std::vector<RankPeak> ranks;
  for (int64_t stage = 0; stage < stages; ++stage) {
    Simulation s = run(stage);
    const int64_t peak = peak_in_blocks(s.trace);
    ranks.push_back({fmt::format("stage {}", stage), s.parameters, Bytes{peak}});
    if (peak <= most) continue;
    most = peak;
    largest = std::move(s);
  }
  largest.ranks = std::move(ranks);
  return largest;
}

}  // namespace plimsoll
