// What simulating costs: one step of two known models, how the cost grows with layers, batch and sequence, and what a plan takes.
#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "estimate/estimate.h"
#include "estimate/fit.h"
#include "hardware/lookup.h"
#include "model/resolve.h"
#include "plan/layouts.h"
#include "plan/levers.h"
#include "plan/plan.h"
#include "program/run.h"

namespace plimsoll {
namespace {

Job job_for(const char* model, int64_t batch, int64_t seq, int64_t steps) {
  Job job;
  job.model = model;
  job.batch = batch;
  job.seq = seq;
  job.origin["seq"] = "benchmark";
  job.steps = steps;
  job.precision = Precision::bf16;
  resolve_model(job);
  return job;
}

void run(benchmark::State& state, const Job& job) {
  size_t events = 0;
  for (auto _ : state) {
    const std::shared_ptr<const Run> run = execute(job, {}, {.all_ranks = false});
    events = run->trace().events.size();
    benchmark::DoNotOptimize(ideal_timeline(run->trace()).worst);
  }
  state.counters["events"] = static_cast<double>(events);
}

// Building the model, one step, and the timeline.
void one_step(benchmark::State& state, const char* model, int64_t batch, int64_t seq) { run(state, job_for(model, batch, seq, 1)); }
BENCHMARK_CAPTURE(one_step, gpt2, "gpt2", 8, 1024)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one_step, llama_3_1_8b, "llama-3.1-8b", 1, 2048)->Unit(benchmark::kMillisecond);

void two_steps_checkpointed(benchmark::State& state, const char* model) {
  Job job = job_for(model, 1, 2048, 2);
  job.checkpointing.on = true;
  run(state, job);
}
BENCHMARK_CAPTURE(two_steps_checkpointed, llama_3_1_8b, "llama-3.1-8b")->Unit(benchmark::kMillisecond);

void whole_estimate(benchmark::State& state) {
  const Job job = job_for("llama-3.1-8b", 1, 2048, 2);
  for (auto _ : state) benchmark::DoNotOptimize(estimate(job).peak);
}
BENCHMARK(whole_estimate)->Unit(benchmark::kMillisecond);

// Llama 3.1 405B on 1,024 GPUs, every stage of the pipeline: FSDP over what tensor and pipeline parallelism leave.
void estimate_of_many_ranks(benchmark::State& state) {
  Job job = job_for("llama-3.1-405b", 16, 8192, 2);
  job.precision = Precision::fp32;
  job.checkpointing.on = true;
  job.clip = 1.0;
  job.program.torchtitan = parse_torchtitan("world=1024,tensor=8,pipeline=16");
  for (auto _ : state) benchmark::DoNotOptimize(estimate(job).ranks.size());
}
BENCHMARK(estimate_of_many_ranks)->Unit(benchmark::kMillisecond)->UseRealTime();

void fit_on_every_device(benchmark::State& state) {
  const Job job = job_for("llama-3.1-8b", 1, 2048, 2);
  for (auto _ : state) {
    Fitting fitting(job);
    for (const DeviceSpec& d : catalogue()) benchmark::DoNotOptimize(fitting.replay_on(target_device(d)).verdict);
  }
}
BENCHMARK(fit_on_every_device)->Unit(benchmark::kMillisecond);

// Every lever of four jobs, each simulated and placed by the allocator.
void what_if_of_four(benchmark::State& state) {
  const Job jobs[] = {job_for("gpt2", 8, 1024, 2), job_for("llama-3.1-8b", 4, 2048, 2), job_for("vit-l16", 32, 224, 2),
                      job_for("resnet50", 64, 224, 2)};
  for (auto _ : state)
    for (const Job& job : jobs) benchmark::DoNotOptimize(what_if(job).effects.size());
}
BENCHMARK(what_if_of_four)->Unit(benchmark::kMillisecond)->UseRealTime();

// `plimsoll plan llama-3.1-8b --gpu rtx-4090`, with ladders, quick fixes and all: seconds that a person waits, on all cores.
void whole_plan(benchmark::State& state, const char* gpu, int64_t batch) {
  PlanRequest request;
  request.job.model = "llama-3.1-8b";
  if (batch > 0) {
    request.job.batch = batch;
    request.job.origin["batch"] = "benchmark";
  }
  resolve_model(request.job);
  size_t executed = 0;
  for (auto _ : state) executed = make_plans(request, {target_device(find_device(gpu))}).front().executed;
  state.counters["executed"] = static_cast<double>(executed);
}
BENCHMARK_CAPTURE(whole_plan, free_batch_on_24_gb, "rtx-4090", 0)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(whole_plan, batch_64_on_80_gb, "a100-80gb", 64)->Unit(benchmark::kMillisecond)->UseRealTime();

// `plimsoll plan llama-3.1-405b --gpu h100-sxm --world 1024`: every layout.
void every_layout(benchmark::State& state) {
  LayoutRequest request;
  request.job = job_for("llama-3.1-405b", 1, 8192, 2);
  request.device = target_device(find_device("h100-sxm"));
  request.world = 1024;
  for (auto _ : state) benchmark::DoNotOptimize(plan_layouts(request).fitting.size());
}
BENCHMARK(every_layout)->Unit(benchmark::kMillisecond)->UseRealTime();

void layers(benchmark::State& state) {
  Job job = job_for("llama-3.1-8b", 1, 2048, 1);
  nlohmann::json config = job.config.values();
  config["num_hidden_layers"] = state.range(0);
  job.config = Config("benchmark", config);
  run(state, job);
}
BENCHMARK(layers)->RangeMultiplier(2)->Range(4, 128)->Unit(benchmark::kMillisecond);

void batch(benchmark::State& state) { run(state, job_for("gpt2", state.range(0), 1024, 1)); }
BENCHMARK(batch)->RangeMultiplier(32)->Range(1, 32768)->Unit(benchmark::kMillisecond);

void sequence(benchmark::State& state) { run(state, job_for("llama-3.1-8b", 1, state.range(0), 1)); }
BENCHMARK(sequence)->RangeMultiplier(32)->Range(128, 131072)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll

BENCHMARK_MAIN();
