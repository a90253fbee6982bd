// A captured program under the one interface: what it is asked, what it refuses, and how sure its answers are.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "allocator/timeline.h"
#include "captured_program.h"
#include "estimate/fit.h"
#include "plan/levers.h"
#include "program/captured.h"
#include "program/program.h"
#include "support.h"
#include "trace/trace_file.h"

namespace plimsoll::captured_program_test {
namespace {

using Json = nlohmann::json;

class CapturedProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::temp_directory_path() / ("plimsoll_captured_" + name);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text, const std::string& name = "train.trace") {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    return path;
  }
  Job job(const Json& settings = Json::object(), const std::string& text = captured_text()) { return job_of(write(text), settings); }

  static std::string problems_text(const Job& job) {
    std::string out;
    for (const Problem& p : problems(job)) out += p.what + " | " + p.hint + "\n";
    return out;
  }
  static bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  std::filesystem::path folder_;
};

TEST_F(CapturedProgram, IsAModelLikeAnyOther) {
  const Job j = job();
  EXPECT_STREQ(program_of(j).name(), "captured program");
  EXPECT_EQ(j.batch, 6);
  EXPECT_EQ(j.seq, 160);
  EXPECT_EQ(j.steps, 2);
  EXPECT_EQ(j.platform.torch, (Version{2, 13}));
  EXPECT_EQ(j.origin.at("batch"), "as captured");
  EXPECT_EQ(problems_text(j), "");
}

TEST_F(CapturedProgram, HasThePeakOfItsTraceAtTheSizesAskedFor) {
  for (const auto& [batch, seq] : {std::pair{6, 160}, std::pair{16, 512}, std::pair{40, 128}}) {
    const Job j = job({{"batch", batch}, {"seq", seq}});
    const int64_t tensors = 1048576 + 8 * batch * seq + 3072 * batch * seq + 1048576;
    const KernelMemory kernels = kernel_memory(j.platform);
    const Timeline timeline = ideal_timeline(execute(j)->trace());
    EXPECT_EQ(timeline.peak().bytes, tensors + 2 * kernels.blas) << batch << " x " << seq;
    EXPECT_EQ(timeline.peak().phase, Phase::backward);
  }
}

// What is captured has no kernels, a simulated run has: cuBLAS takes a workspace for each thread that multiplies.
TEST_F(CapturedProgram, AddsTheWorkspacesOfItsDevice) {
  const auto workspaces = [&](const std::string& target) {
    std::vector<int64_t> out;
    for (const StorageRecord& s : execute(job(), {target, DeviceKind::gpu})->trace().storages)
      if (s.born_as == Category::workspace) out.push_back(s.bytes);
    return out;
  };
  EXPECT_EQ(workspaces(""), (std::vector<int64_t>{8'519'680, 8'519'680}));
  EXPECT_EQ(workspaces("9.0"), (std::vector<int64_t>{32 << 20, 32 << 20}));
}

TEST_F(CapturedProgram, RefusesASizeOutsideItsGuardsWithLineAndCommand) {
  const std::string text = problems_text(job({{"batch", 8}, {"seq", 256}}));
  EXPECT_TRUE(says(text, "train.py:11")) << text;
  EXPECT_TRUE(says(text, "batch*seq < 1024 and batch*seq >= 768 or batch*seq >= 4096")) << text;
  EXPECT_TRUE(says(text, "plimsoll capture --size batch=8 --size seq=256 -o ")) << text;
  EXPECT_TRUE(says(text, "-- python train.py --lr 1e-3")) << text;
  EXPECT_THROW(execute(job({{"batch", 8}, {"seq", 256}})), Error);
}

TEST_F(CapturedProgram, RefusesABrokenPinThoughItMayBeTheHostsAlone) {
  const std::string text = problems_text(job({{"batch", 60}, {"seq", 100}}));
  EXPECT_TRUE(says(text, "train.py:14")) << text;
  EXPECT_TRUE(says(text, "perhaps by the host alone")) << text;
}

TEST_F(CapturedProgram, RefusesWhatItsScriptDecides) {
  for (const auto& [key, value] : {std::pair<const char*, Json>{"precision", "bf16"},
                                   {"optimizer", "Lion"},
                                   {"checkpointing", true},
                                   {"accumulation", 4},
                                   {"lora", {{"r", 8}}},
                                   {"steps", 3},
                                   {"ddp", {{"world", 8}}}}) {
    const std::string text = problems_text(job({{key, value}}));
    EXPECT_TRUE(says(text, key)) << key << ": " << text;
    EXPECT_TRUE(says(text, "capture")) << key << ": " << text;
  }
  EXPECT_EQ(problems_text(job({{"alloc_conf", "expandable_segments:True"}, {"precision", "amp"}})), "");
}

TEST_F(CapturedProgram, RefusesASymbolThatItDoesNotHave) {
  const std::string text = problems_text(job({{"size", "side=64"}}));
  EXPECT_TRUE(says(text, "side = 64")) << text;
  EXPECT_TRUE(says(text, "batch, seq")) << text;
  const std::string fixed = "{\"plimsoll_trace\":1}\n{\"alloc\":0,\"bytes\":64}\n{\"step\":true}\n";
  EXPECT_TRUE(says(problems_text(job({{"batch", 4}}, fixed)), "batch = 4"));
}

TEST_F(CapturedProgram, GradesWhatItKnows) {
  EXPECT_EQ(grade_of(job()), CaptureGrade::exact_here);
  EXPECT_EQ(grade_of(job({{"batch", 16}, {"seq", 512}})), CaptureGrade::by_formula);
  EXPECT_EQ(grade_of(job({{"batch", 40}, {"seq", 128}})), CaptureGrade::checked);
  EXPECT_EQ(grade_of(job({}, captured_count_text())), CaptureGrade::assumes);
  const std::string assumed =
      captured_head("{\"read\":\"train.py:7\",\"dtype\":\"float32\",\"value\":0.5,\"known\":false}\n") + captured_body();
  EXPECT_EQ(grade_of(job({}, assumed)), CaptureGrade::assumes);
  EXPECT_EQ(assumptions_of(job({}, assumed)), (std::vector<std::string>{"train.py:7: a value that was read (float32) is taken to be 0.5"}));
}

TEST_F(CapturedProgram, OfACountIsAnIntervalFromNothingToAll) {
  const Job j = job({{"batch", 32}, {"seq", 1024}}, captured_count_text());
  const std::optional<CountRange> range = count_range(j);
  ASSERT_TRUE(range);
  const int64_t most = 3072 * int64_t{32} * 1024;
  EXPECT_LE(range->none.allocated_peak + most, range->all.allocated_peak + 512);
  TargetDevice device;
  device.spec.vendor = "NVIDIA";
  Runs runs;
  const DeviceMemory memory = Fitting(runs, j).need_on(device).memory;
  EXPECT_LE(memory.allocated.low.count, range->none.allocated_peak);
  EXPECT_GE(memory.allocated.high.count, range->all.allocated_peak);
  const std::string assumed = assumptions_of(j).front();
  EXPECT_TRUE(says(assumed, "train.py:19: n1 follows from the data: 16384 of at most 32768")) << assumed;
  EXPECT_FALSE(count_range(job()));
}

TEST_F(CapturedProgram, OffersOnlyTheLeversThatItsTraceFollows) {
  std::vector<std::string> names;
  for (const Lever& l : levers_for(job())) names.push_back(l.name);
  EXPECT_EQ(names, (std::vector<std::string>{"half the batch", "half the sequence", "expandable segments", "large blocks not split"}));
}

TEST_F(CapturedProgram, KnowsTheWorkOfItsLastStep) {
  const auto run = execute(job({{"batch", 16}, {"seq", 512}}), {}, {.work = true});
  ASSERT_EQ(run->simulation.work.kernels.size(), 1u);
  const Kernel& k = run->simulation.work.kernels[0];
  EXPECT_STREQ(k.op, "mm");
  EXPECT_EQ(k.flops, 2.0 * 1024 * 1024 * 16);
  EXPECT_EQ(k.bytes, 2 * 3072 * 16 * 512);
  EXPECT_EQ(k.unit, Unit::matmul);
  EXPECT_EQ(k.phase, Phase::forward);
}

TEST_F(CapturedProgram, IsExecutedOnceForEachSize) {
  Runs runs;
  const Job j = job();
  const auto first = runs.execute(j);
  EXPECT_EQ(runs.execute(j), first);
  Job larger = j;
  apply_setting(larger, "batch", 16, "test");
  apply_setting(larger, "seq", 512, "test");
  EXPECT_NE(runs.execute(larger), first);
  EXPECT_EQ(runs.executed(), 2u);
}

// A simulated run that was saved is the same run when it is read again, but for the workspaces, which it has already.
TEST_F(CapturedProgram, OfVersion1IsTheRunThatWroteIt) {
  const Job simulated = job_of("gpt2", {{"batch", 2}, {"seq", 64}, {"config", {{"n_layer", 2}}}});
  const auto run = execute(simulated);
  std::ostringstream text;
  write_trace(run->trace(), text);
  const Job again = job({}, text.str());
  EXPECT_EQ(execute(again)->cuda().allocated_peak, run->cuda().allocated_peak);
  EXPECT_EQ(execute(again)->cuda().reserved_peak, run->cuda().reserved_peak);
  EXPECT_EQ(grade_of(again), CaptureGrade::exact_here);
}

TEST_F(CapturedProgram, WithoutAStepIsNoRun) {
  EXPECT_TRUE(says(error_of([&] { job({}, "{\"plimsoll_trace\":1}\n{\"alloc\":0,\"bytes\":64}\n"); }), "no training step"));
}

}  // namespace
}  // namespace plimsoll::captured_program_test
