// A captured program at another size: a trace of 50,000 events with a hundred formulas, evaluated; and the same file read.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <sstream>
#include <string>

#include "trace/trace_file.h"

namespace plimsoll {
namespace {

constexpr int kFormulas = 100, kBenchEvents = 50'000;

// Activations that come and go; every second one has a formula, as long as an expanded one of a convolution.
std::string captured_text() {
  std::string out =
      "{\"plimsoll_trace\":2,\"torch\":\"2.13.0\",\"script\":\"train.py\",\"steps\":1}\n"
      "{\"symbol\":\"batch\",\"at\":6,\"min\":2,\"max\":4294967296}\n{\"symbol\":\"seq\",\"at\":160,\"min\":2,\"max\":4294967296}\n";
  for (int i = 0; i < kFormulas; ++i)
    out += fmt::format(
        "{{\"formula\":{0},\"bytes\":\"32*cdiv(batch*seq + {0}, 32) + {0}*pow(seq, 2) + 4*max(batch, {0})*fdiv(seq - 1, 2)\"}}\n", i);
  for (int i = 0; i < kFormulas; ++i)
    out += fmt::format("{{\"guard\":\"batch*seq > {} or batch != seq\",\"where\":\"train.py:{}\"}}\n", i, i);
  out += "{\"step\":true}\n";
  for (int i = 0; i < kBenchEvents / 2; ++i) {
    const std::string bytes = i % 2 ? std::string("4096") : fmt::format("{{\"formula\":{}}}", i / 2 % kFormulas);
    out += fmt::format(
        "{{\"alloc\":{0},\"bytes\":{1},\"category\":\"activation\",\"phase\":\"forward\",\"op\":\"aten::mm\"}}\n{{\"free\":{0}}}\n", i,
        bytes);
  }
  return out;
}

void evaluate_at_another_size(benchmark::State& state) {
  const CapturedTrace captured = read_captured_trace_text(captured_text(), "bench");
  int64_t seq = 512;
  for (auto _ : state) {
    const std::vector<int64_t> values = captured.values({{"batch", 16}, {"seq", ++seq}});
    benchmark::DoNotOptimize(captured.broken(values));
    benchmark::DoNotOptimize(captured.evaluate(values));
  }
  state.counters["events"] = static_cast<double>(captured.program.events.size());
}
BENCHMARK(evaluate_at_another_size)->Unit(benchmark::kMillisecond);

void read_the_file(benchmark::State& state) {
  const std::string text = captured_text();
  for (auto _ : state) benchmark::DoNotOptimize(read_captured_trace_text(text, "bench"));
}
BENCHMARK(read_the_file)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll

BENCHMARK_MAIN();
