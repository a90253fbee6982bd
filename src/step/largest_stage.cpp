#include "step/largest_stage.h"

#include <fmt/format.h>

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
  int64_t largest_stage = -1;
  std::vector<RankPeak> ranks(static_cast<size_t>(stages));
  parallel_for(ranks.size(), [&](size_t i) {
    const auto stage = static_cast<int64_t>(i);
    Simulation s = run(stage, false);
    const std::lock_guard lock(mutex);
    ranks[i] = {fmt::format("stage {}", stage), s.parameters, Bytes{peak_in_blocks(s.trace)}};
    const Bytes most = largest_stage < 0 ? Bytes{-1} : ranks[static_cast<size_t>(largest_stage)].peak;
    if (ranks[i].peak > most || (ranks[i].peak == most && stage < largest_stage)) largest = std::move(s), largest_stage = stage;
  });
  Simulation answer = wants_more ? run(largest_stage, true) : std::move(largest);
  answer.ranks = std::move(ranks);
  return answer;
}

}  // namespace plimsoll
