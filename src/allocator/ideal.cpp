#include <algorithm>
#include <numeric>

#include "allocator/timeline.h"

namespace plimsoll {

namespace {
int64_t block(int64_t bytes) { return (bytes + 511) / 512 * 512; }
}  // namespace

int64_t StepPeak::pool_sum() const { return std::accumulate(by_stream.begin(), by_stream.end(), int64_t{0}); }

Timeline ideal_timeline(const Trace& trace) {
  Timeline timeline;
  std::vector<Category> label(trace.storages.size());
  std::vector<uint8_t> stream(trace.storages.size());
  ByCategory by_category{};
  ByStream in_pool{};
  int64_t now = 0, rounded = 0;
  Phase phase = Phase::setup;
  StepPeak* step = nullptr;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    const int64_t bytes = e.kind == Event::Kind::phase || e.kind == Event::Kind::step ? 0 : trace.storages[e.storage].bytes;
    switch (e.kind) {
      case Event::Kind::alloc:
        label[e.storage] = trace.storages[e.storage].born_as;
        by_category[static_cast<size_t>(label[e.storage])] += bytes;
        now += bytes;
        rounded += block(bytes);
        stream[e.storage] = e.value;
        in_pool[e.value] += bytes;
        if (!step) break;
        step->by_stream[e.value] = std::max(step->by_stream[e.value], in_pool[e.value]);
        step->rounded = std::max(step->rounded, rounded);
        step->by_phase[static_cast<size_t>(phase)] = std::max(step->by_phase[static_cast<size_t>(phase)], now);
        if (now > step->bytes) {
          step->bytes = now;
          step->at_event = static_cast<int64_t>(i);
          step->phase = phase;
          step->by_category = by_category;
        }
        break;
      case Event::Kind::free:
        by_category[static_cast<size_t>(label[e.storage])] -= bytes;
        now -= bytes;
        rounded -= block(bytes);
        in_pool[stream[e.storage]] -= bytes;
        break;
      case Event::Kind::relabel:
        by_category[static_cast<size_t>(label[e.storage])] -= bytes;
        label[e.storage] = static_cast<Category>(e.value);
        by_category[e.value] += bytes;
        break;
      case Event::Kind::phase: phase = static_cast<Phase>(e.value); break;
      case Event::Kind::step:
        step = &timeline.steps.emplace_back();
        *step = {now, rounded, static_cast<int64_t>(i), phase, by_category, {}, in_pool};
        break;
    }
  }
  for (size_t i = 1; i < timeline.steps.size(); ++i)
    if (timeline.steps[i].bytes > timeline.steps[timeline.worst].bytes) timeline.worst = i;
  return timeline;
}

std::vector<LiveStorage> alive_at(const Trace& trace, int64_t at_event) {
  std::vector<Category> label(trace.storages.size());
  std::vector<bool> alive(trace.storages.size());
  for (int64_t i = 0; i <= at_event; ++i) {
    const Event& e = trace.events[static_cast<size_t>(i)];
    if (e.kind == Event::Kind::alloc) {
      alive[e.storage] = true;
      label[e.storage] = trace.storages[e.storage].born_as;
    } else if (e.kind == Event::Kind::free) {
      alive[e.storage] = false;
    } else if (e.kind == Event::Kind::relabel) {
      label[e.storage] = static_cast<Category>(e.value);
    }
  }
  std::vector<LiveStorage> out;
  for (StorageId id = 0; id < trace.storages.size(); ++id)
    if (alive[id]) out.push_back({id, label[id]});
  return out;
}

}  // namespace plimsoll
