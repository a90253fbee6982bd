// Replayed operations per second: the caching allocator alone on a trace, and the line protocol with its text on a script.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "allocator/cuda_timeline.h"
#include "allocator/replay_protocol.h"

namespace plimsoll {
namespace {

// Steps of a training-like pattern, the same in every run: weights stay, activations of mixed sizes come and go last in
// first out with a few that outlive the step.
Trace training_trace(int steps) {
  std::mt19937 random(7);
  const int64_t sizes[] = {2048, 12288, 262144, 1 << 20, 3 << 20, 9 << 20, 25165824, 100663296};
  Trace trace;
  const auto add = [&](int64_t bytes) {
    trace.storages.push_back({bytes, 0, 0, Category::activation, Phase::forward});
    trace.events.push_back({Event::Kind::alloc, 0, static_cast<StorageId>(trace.storages.size() - 1)});
    return static_cast<StorageId>(trace.storages.size() - 1);
  };
  const auto remove = [&](StorageId id) { trace.events.push_back({Event::Kind::free, 0, id}); };
  for (int i = 0; i < 200; ++i) add(sizes[random() % 7]);
  for (int step = 0; step < steps; ++step) {
    std::vector<StorageId> saved;
    for (int op = 0; op < 400; ++op) {
      const StorageId temporary = add(sizes[random() % 8] + static_cast<int64_t>(random() % 4096));
      saved.push_back(add(sizes[random() % 8]));
      remove(temporary);
    }
    while (!saved.empty()) {
      const StorageId gradient = add(sizes[random() % 8]);
      remove(saved.back());
      saved.pop_back();
      remove(gradient);
    }
  }
  return trace;
}

std::string script_of(const Trace& trace, const char* settings) {
  std::string out = fmt::format("# capacity: {}\n# settings: {}\n", int64_t{1} << 40, settings);
  for (const Event& e : trace.events)
    out += e.kind == Event::Kind::alloc ? fmt::format("alloc t{} {}\n", e.storage, trace.storages[e.storage].bytes)
                                        : fmt::format("free t{}\n", e.storage);
  return out;
}

void engine(benchmark::State& state, const char* settings) {
  const Trace trace = training_trace(50);
  const AllocConf conf = parse_alloc_conf(settings);
  for (auto _ : state) benchmark::DoNotOptimize(cuda_timeline(trace, conf).reserved_peak);
  state.counters["operations/s"] =
      benchmark::Counter(static_cast<double>(trace.events.size()), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(engine, default_settings, "")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(engine, expandable_segments, "expandable_segments:True")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(engine, power_of_two, "roundup_power2_divisions:4")->Unit(benchmark::kMillisecond);

void protocol(benchmark::State& state, const char* settings) {
  const Trace trace = training_trace(50);
  const std::string script = script_of(trace, settings);
  for (auto _ : state) benchmark::DoNotOptimize(replay_protocol(script).size());
  state.counters["operations/s"] =
      benchmark::Counter(static_cast<double>(trace.events.size()), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(protocol, default_settings, "")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(protocol, expandable_segments, "expandable_segments:True")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll

BENCHMARK_MAIN();
