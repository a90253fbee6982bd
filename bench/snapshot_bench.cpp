// Reading a PyTorch memory snapshot: the pickle alone, the snapshot in it, and all the way to the replayed run.
#include <benchmark/benchmark.h>

#include <random>
#include <string>

#include "allocator/recorded_settings.h"
#include "allocator/snapshot_replay.h"
#include "pickle_writer.h"

namespace plimsoll {
namespace {

constexpr int kFrames = 4000, kDepth = 60;  // distinct frames, and frames of a call stack: as in recorded files
constexpr int64_t kSegment = 20 * kMiB, kBase = 0x7f0000000000;

void number(PickleWriter& w, const char* key, int64_t value) {
  w.text(key);
  w.integer(value);
}

void frames(PickleWriter& w, const std::vector<uint32_t>& known, std::mt19937& random) {
  w.open(']');
  for (int i = 0; i < kDepth; ++i) w.get(known[random() % known.size()]);
  w.close('e');
}

void entry(PickleWriter& w, const char* action, int64_t address, int64_t size, int64_t time, uint32_t stack) {
  w.open('}');
  w.text("action");
  w.text(action);
  number(w, "addr", address);
  number(w, "size", size);
  number(w, "stream", 0);
  number(w, "time_us", time);
  w.text("compile_context");
  w.text("N/A");
  w.text("frames");
  w.get(stack);
  w.close('u');
}

// One block of 9 MiB comes and goes in one segment; every allocation has its own call stack.
std::string snapshot_file(int allocations) {
  std::mt19937 random(7);
  PickleWriter w(4);
  std::vector<uint32_t> known, stacks;
  w.open('}');
  w.text("frames of the benchmark");  // an unknown key: what is shared is written before it is used
  w.open(']');
  for (int i = 0; i < kFrames; ++i) {
    known.push_back(w.open('}'));
    w.text("name");
    w.text("function_" + std::to_string(i));
    w.text("filename");
    w.text("package/module_" + std::to_string(i % 300) + ".py");
    number(w, "line", i);
    w.close('u');
  }
  for (int i = 0; i < allocations; ++i) {
    stacks.push_back(w.next_memo());
    frames(w, known, random);
  }
  w.close('e');
  w.text("segments");
  w.open(']');
  w.close('e');
  w.text("device_traces");
  w.open(']');
  w.open(']');
  for (int i = 0; i < allocations; ++i) {
    const uint32_t stack = stacks[static_cast<size_t>(i)];
    entry(w, "segment_alloc", kBase, kSegment, i, stack);
    entry(w, "alloc", kBase, 9 * kMiB, i, stack);
    entry(w, "free_requested", kBase, 9 * kMiB, i, stack);
    entry(w, "free_completed", kBase, 9 * kMiB, i, stack);
    entry(w, "segment_free", kBase, kSegment, i, stack);
    if (i % 200 == 199) w.batch();
  }
  w.close('e');
  w.close('e');
  w.close('u');
  return w.finish();
}

constexpr int kAllocations = 40'000;

template <class F>
void measure(benchmark::State& state, F run) {
  const std::string bytes = snapshot_file(kAllocations);
  for (auto _ : state) run(bytes);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes.size()));
  state.counters["entries/s"] = benchmark::Counter(kAllocations * 5, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["MB"] = static_cast<double>(bytes.size()) / 1e6;
}

void pickle(benchmark::State& state) {
  measure(state, [](const std::string& bytes) { benchmark::DoNotOptimize(read_pickle(bytes, "bench").values()); });
}
BENCHMARK(pickle)->Unit(benchmark::kMillisecond);

void snapshot(benchmark::State& state) {
  measure(state, [](const std::string& bytes) { benchmark::DoNotOptimize(read_snapshot(bytes, "bench").stacks.size()); });
}
BENCHMARK(snapshot)->Unit(benchmark::kMillisecond);

void whole_replay(benchmark::State& state) {
  measure(state, [](const std::string& bytes) {
    const Snapshot s = read_snapshot(bytes, "bench");
    const AllocConf conf = recorded_settings(s).conf;
    benchmark::DoNotOptimize(
        replay_snapshot(recorded_run(s, 0, conf), conf, {kBoundlessDevice, 0, {}}, ReplayStart::as_recorded).reserved_peak);
  });
}
BENCHMARK(whole_replay)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll

BENCHMARK_MAIN();
