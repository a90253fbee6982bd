// From allocated bytes to the device: workspaces inside the allocator, overheads outside it, and whether a run fits.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "estimate/fit.h"
#include "hardware/lookup.h"
#include "model/registry.h"
#include "model/resolve.h"
#include "simulate.h"
#include "tensor/kernel_memory.h"

namespace plimsoll::device_test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

Job job_for(const char* model, int64_t batch = 2, int64_t seq = 64) {
  Job job;
  job.model = model;
  job.batch = batch;
  job.seq = seq;
  job.origin["seq"] = "test";
  resolve_model(job);
  return job;
}

// Sizes of the storages that one op made, in order.
std::vector<int64_t> made_by(const Trace& trace, const std::string& op, Category category) {
  std::vector<int64_t> out;
  for (const StorageRecord& s : trace.storages)
    if (trace.names[s.op] == op && s.born_as == category) out.push_back(s.bytes);
  return out;
}

TEST(KernelMemory, FollowsThePublishedSizes) {
  EXPECT_EQ(kernel_memory({}).blas, 8'519'680);
  EXPECT_EQ(kernel_memory({{2, 14}, {5, 12}, "9.0"}).blas, 32 * kMiB);
  EXPECT_EQ(kernel_memory({{2, 14}, {5, 12}, "10.0"}).blas, 8'519'680);
  EXPECT_EQ(kernel_memory({{2, 14}, {5, 12}, "gfx942"}).blas, 128 * kMiB);
  EXPECT_EQ(kernel_memory({{2, 14}, {5, 12}, "gfx1100"}).blas, 32 * kMiB);
  EXPECT_EQ(kernel_memory({{1, 10}, {4, 16}, "7.0"}).blas, 0);
  EXPECT_TRUE(kernel_memory({{2, 9}, {}, ""}).keeps_blas_lt);
  EXPECT_FALSE(kernel_memory({{2, 8}, {}, ""}).keeps_blas_lt);
}

TEST(Workspaces, OneForTheForwardAndOneForTheBackwardThread) {
  const Trace trace = simulate(job_for("gpt2")).trace;
  EXPECT_EQ(made_by(trace, "cublas_workspace", Category::workspace), (std::vector<int64_t>{8'519'680, 8'519'680}));
  EXPECT_EQ(made_by(trace, "cublaslt_workspace", Category::workspace), (std::vector<int64_t>{kMiB}));  // biases are forward only
}

TEST(Workspaces, AreLargerOnHopper) {
  Job job = job_for("gpt2");
  job.platform.target = "9.0";
  EXPECT_EQ(made_by(simulate(job).trace, "cublas_workspace", Category::workspace), (std::vector<int64_t>{32 * kMiB, 32 * kMiB}));
}

TEST(Workspaces, FlashAttentionsBackwardAccumulatesInFp32) {
  Job job = job_for("gpt2", 2, 100);  // 12 heads of 64
  job.precision = Precision::bf16;
  const std::vector<int64_t> made = made_by(simulate(job).trace, "_scaled_dot_product_flash_attention_backward", Category::workspace);
  ASSERT_FALSE(made.empty());
  EXPECT_EQ(made[0], 2 * 12 * 128 * 4);       // rows rounded up to 128
  EXPECT_EQ(made[1], 2 * 12 * 128 * 64 * 4);  // and a head of them each
}

TEST(Workspaces, EmbeddingsBackwardSortsBeyond3072Tokens) {
  EXPECT_TRUE(made_by(simulate(job_for("gpt2", 3, 1024)).trace, "embedding_dense_backward", Category::workspace).empty());
  const std::vector<int64_t> made = made_by(simulate(job_for("gpt2", 4, 1024)).trace, "embedding_dense_backward", Category::workspace);
  ASSERT_FALSE(made.empty());
  EXPECT_EQ(*std::max_element(made.begin(), made.end()), (4096 / 10 + 4096) * 768 * 4);
}

TEST(Workspaces, AreAbsentInRecordedRows) {
  Job job = job_for("gpt2");
  job.recorded_item = 1;
  const Trace trace = simulate(job).trace;
  for (const StorageRecord& s : trace.storages) EXPECT_NE(s.born_as, Category::workspace);
}

TEST(Cache, IsKeptByPlainLoopsAndTurnedOffByCheckpointing) {
  auto cached = [](const Job& job) {  // larger than the positions that are looked at for packed sequences
    const std::vector<int64_t> made = made_by(simulate(job).trace, "cat", Category::activation);
    return std::count_if(made.begin(), made.end(), [](int64_t bytes) { return bytes > 4096; });
  };
  Job job = job_for("gpt2");
  const auto keys_and_values = cached(job);
  EXPECT_EQ(keys_and_values, 2 * 12 * 2);  // two steps of twelve layers
  Job off = job;
  off.config = Config("test", nlohmann::json{{"use_cache", false}});
  EXPECT_EQ(cached(off), 0);
  job.checkpointing.on = true;
  EXPECT_EQ(cached(job), 0);
}

TEST(Loop, GradientsOutliveTheStepWhereTheLoopDropsThemLate) {
  Job job = job_for("resnet18", 2, 64);
  const CudaTimeline after = cuda_timeline(simulate(job).trace);
  job.zero_grad = ZeroGrad::before_forward;
  const CudaTimeline before = cuda_timeline(simulate(job).trace);
  const int64_t parameters = simulate(job).parameters;
  EXPECT_EQ(before.end.requested - after.end.requested, parameters * 4);
}

TEST(Loop, EvaluationNeedsNoMoreThanTheForwardOfTraining) {
  for (const ModelEntry& entry : model_registry()) {
    if (entry.name == "megatron" || entry.name == "qwen2_vl") continue;  // no Model; defaults that do not fit together
    Job job;
    job.model = entry.name;
    job.batch = 2;
    if (entry.name == "diffusion-trainer")
      job.config = Config("test", {{"denoiser", "sd-1.5-unet"}, {"cache_latents", true}, {"cache_text_embeddings", true}});
    resolve_model(job);
    if (entry.inputs != InputKind::image && entry.inputs != InputKind::vector && entry.inputs != InputKind::own) job.seq = 32;
    job.eval_batch = 2;
    job.steps = 1;
    if (!entry.classes.empty() && entry.family->is_transformers() && entry.inputs != InputKind::image)
      job.config = Config(entry.name, nlohmann::json{{"vocab_size", 1000}, {"pad_token_id", 0}});
    try {
      const Simulation run = simulate(job);
      const Timeline t = ideal_timeline(run.trace);
      ASSERT_EQ(t.steps.size(), 2u) << entry.name;
      EXPECT_EQ(step_names(job).back(), "evaluation");
      EXPECT_LE(t.steps[1].by_phase[static_cast<size_t>(Phase::evaluation)], t.steps[0].bytes * 2) << entry.name;
      EXPECT_GT(t.steps[1].by_phase[static_cast<size_t>(Phase::evaluation)], 0) << entry.name;
    } catch (const Error& e) {
      ADD_FAILURE() << entry.name << ": " << e.what();
    }
  }
}

TEST(Loop, GenerationKeepsKeysAndValuesOfEveryToken) {
  Job job = job_for("gpt2");
  job.precision = Precision::bf16;
  job.sampling = {3, 10, 90};
  const Trace trace = simulate(job).trace;
  int64_t final_cache = 0;
  for (const StorageRecord& s : trace.storages)
    if (s.phase == Phase::sampling && s.bytes == 3 * 12 * 100 * 64 * 2) final_cache += s.bytes;
  EXPECT_EQ(final_cache, int64_t{2} * 12 * 3 * 12 * 100 * 64 * 2);  // keys and values, layers, batch, heads, tokens, width, bf16
}

TEST(Loop, ModelsThatWriteNoTextCannotSample) {
  Job job = job_for("resnet18", 2, 64);
  job.sampling.tokens = 5;
  EXPECT_THROW(simulate(job), Error);
}

TEST(Overheads, TheMostSpecificRowOfTheTableApplies) {
  auto context = [](const char* device, Version torch = {2, 14}) {
    return overheads({find_device(device), torch}).at(0).range.bytes.count / kMiB;
  };
  EXPECT_EQ(context("a100-80gb"), 512);
  EXPECT_EQ(context("rtx-3060"), 206);
  EXPECT_EQ(context("rtx-3090"), 307);
  EXPECT_EQ(context("h100-sxm"), 669);
  EXPECT_EQ(context("v100-sxm2-16gb", {1, 10}), 1343);
  EXPECT_EQ(overheads({}).at(0).range.bytes.count / kMiB, 329);
  EXPECT_EQ(overheads({find_device("mi300x"), {2, 14}}).at(0).name, "HIP context and kernels");
}

TEST(Overheads, LibrariesAreNamedRowsOfTheirOwn) {
  DeviceFacts facts{find_device("rtx-4090"), {2, 14}, true, 8};
  std::vector<std::string> names;
  for (const Overhead& o : overheads(facts)) {
    names.push_back(o.name);
    EXPECT_FALSE(o.source.empty());
    EXPECT_LE(o.range.low, o.range.bytes);
    EXPECT_LE(o.range.bytes, o.range.high);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"CUDA context and kernels", "cuDNN handle and kernels", "NCCL"}));
}

TEST(Overheads, MalformedRowsAreErrorsThatNameTheLine) {
  const std::string header = "name,vendor,target,memory_gb_up_to,loading,low_mib,typical_mib,high_mib,source\n";
  EXPECT_EQ(parse_overheads(header + "a,NVIDIA,,,lazy,1,2,3,somewhere\n", "x.csv").size(), 1u);
  for (const char* row : {"a,NVIDIA,,,lazy,1,2,3\n", "a,NVIDIA,,,lazy,-1,2,3,somewhere\n", "a,NVIDIA,,,lazy,3,2,4,somewhere\n",
                          "a,NVIDIA,,,lazy,1,two,3,somewhere\n", "a,NVIDIA,,,lazy,1,2,3,\n", "a,NVIDIA,,,lazy,1,2,99999999999,x\n"}) {
    try {
      parse_overheads(header + row, "x.csv");
      ADD_FAILURE() << row;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("x.csv:2"), std::string::npos) << e.what();
    }
  }
}

TEST(DeviceMemory, IsReservedAndEveryOverheadAndNothingElse) {
  const CudaTimeline run = cuda_timeline(simulate(job_for("resnet18", 2, 64)).trace);
  const DeviceMemory m = device_memory(run, {{}, {2, 14}, true, 1});
  Bytes sum = m.reserved.bytes;
  for (const Overhead& o : m.overheads) sum += o.range.bytes;
  EXPECT_EQ(m.device.bytes, sum);
  EXPECT_LE(m.device.low, m.device.bytes);
  EXPECT_GE(m.device.high, m.device.bytes);
}

TargetDevice device_of(int64_t mib) {
  TargetDevice d;
  d.spec.vendor = "NVIDIA";
  d.capacity = Capacity{{mib * kMiB}, {mib * kMiB}, {mib * kMiB}, "test"};
  return d;
}

TEST(Fit, GoesFromFitsOverTightToDoesNotFitAsTheDeviceShrinks) {
  Fitting fitting(job_for("gpt2", 4, 512));
  const int64_t need = fitting.replay_on(device_of(1 << 20)).memory.device.bytes.count / kMiB;
  EXPECT_EQ(fitting.replay_on(device_of(2 * need)).verdict, Verdict::fits);
  EXPECT_EQ(fitting.replay_on(device_of(need + 16)).verdict, Verdict::tight);
  const Fit none = fitting.replay_on(device_of(need / 2));
  EXPECT_EQ(none.verdict, Verdict::does_not_fit);
  ASSERT_TRUE(none.failure);
  EXPECT_EQ(none.failure->step, "step 1");
  EXPECT_LT(none.margin.count, 0);
  EXPECT_EQ(fitting.replay_on(device_of(100)).verdict, Verdict::does_not_fit);
  Verdict last = Verdict::fits;
  for (int64_t mib = 2 * need; mib > 256; mib -= need / 10) {  // never better on a smaller device
    const Verdict v = fitting.replay_on(device_of(mib)).verdict;
    EXPECT_GE(v, last) << mib;
    last = v;
  }
}

TEST(Fit, OtherProcessesTakeTheirShare) {
  Fitting fitting(job_for("gpt2", 4, 512));
  TargetDevice d = device_of(24 * 1024);
  const Fit alone = fitting.replay_on(d);
  d.others = {20 * 1024 * kMiB};
  const Fit shared = fitting.replay_on(d);
  EXPECT_EQ(alone.margin - shared.margin, d.others);
  EXPECT_NE(shared.verdict, Verdict::fits);
}

TEST(Fit, AnOptimizerThatAppearsLaterFailsInTheSecondStep) {
  Job job = job_for("gpt2-medium", 1, 64);
  job.precision = Precision::fp32;
  Fitting fitting(job);
  const int64_t need = fitting.replay_on(device_of(1 << 20)).memory.device.bytes.count / kMiB;
  bool later = false;
  for (int64_t mib = need; mib > need / 2; mib -= 64) {
    const Fit f = fitting.replay_on(device_of(mib));
    if (f.failure) later |= f.failure->step == "step 2" || f.failure->phase == Phase::optimizer;
  }
  EXPECT_TRUE(later);
}

TEST(Fit, TheLongestSampleMayBeTheOneThatFails) {
  Job job = job_for("gpt2", 4, 128);
  job.longest = 1024;
  Fitting fitting(job);
  const int64_t need = fitting.replay_on(device_of(1 << 20)).memory.device.bytes.count / kMiB;
  const Fit f = fitting.replay_on(device_of(need * 6 / 10));
  ASSERT_TRUE(f.failure);
  EXPECT_EQ(f.failure->step, "longest sample");
}

TEST(Fit, UnknownIsSaidWhereNothingIsEstablished) {
  Fitting fitting(job_for("gpt2"));
  TargetDevice d = device_of(1);
  d.capacity.reset();
  EXPECT_EQ(fitting.replay_on(d).verdict, Verdict::unknown);
  EXPECT_EQ(fitting.replay_on(target_device(find_device("tpu-v4"))).verdict, Verdict::unknown);
}

TEST(Fit, AnswersForEveryDeviceOfTheCatalogue) {
  Fitting fitting(job_for("gpt2"));
  for (const DeviceSpec& d : catalogue()) {
    const Fit f = fitting.replay_on(target_device(d));
    EXPECT_EQ(f.device.capacity.has_value(), usable_memory(d).has_value()) << d.id;
    EXPECT_FALSE(f.reason.empty()) << d.id;
  }
}

}  // namespace
}  // namespace plimsoll::device_test
