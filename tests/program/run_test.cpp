// One execution, many questions: which ranks are executed, which of them is the answer, and that each job is executed once.
#include <gtest/gtest.h>

#include <algorithm>

#include "estimate/estimate.h"
#include "estimate/fit.h"
#include "hardware/lookup.h"
#include "program/run.h"
#include "support.h"

namespace plimsoll::program_run_test {
namespace {

Job small_gpt2(const nlohmann::json& settings = {}) {
  Job job = job_of("gpt2", {{"batch", 2}, {"seq", 32}, {"config", {{"n_layer", 2}, {"n_embd", 96}, {"n_head", 4}, {"vocab_size", 1003}}}});
  for (const auto& [key, value] : settings.items()) apply_setting(job, key, value, "test");
  return job;
}

// A job that asks about rank 0 is asked about all; each rank is in one span, and has what its span has.
void expect_spans_of_all(const Job& job, int64_t world) {
  const auto run = execute(job);
  int64_t next = 0;
  for (const RankRun& r : run->ranks) {
    EXPECT_EQ(r.span.first, next);
    next = r.span.last + 1;
    for (int64_t rank = r.span.first; rank <= r.span.last; ++rank) {
      const auto one = execute(with_rank(job, rank), {}, {.all_ranks = false});
      EXPECT_EQ(one->simulation.parameters, r.parameters) << rank;
      EXPECT_EQ(one->cuda().allocated_peak, r.cuda.allocated_peak) << rank;
    }
  }
  EXPECT_EQ(next, world);
}

TEST(Ranks, EveryOneThatDiffersIsExecuted) {
  for (const int64_t world : {2, 3, 7, 12, 33}) expect_spans_of_all(small_gpt2({{"fsdp", {{"world", world}}}}), world);
  EXPECT_GT(execute(small_gpt2({{"fsdp", {{"world", 7}}}}))->ranks.size(), 1u);
  expect_spans_of_all(small_gpt2({{"zero1", {{"world", 5}}}}), 5);
  EXPECT_TRUE(execute(small_gpt2({{"fsdp", {{"world", 7}, {"rank", 2}}}}))->ranks.empty()) << "one that was asked for";
  EXPECT_TRUE(execute(small_gpt2())->ranks.empty());
}

TEST(Ranks, TheOneThatNeedsMostIsTheAnswer) {
  const auto run = execute(small_gpt2({{"zero1", {{"world", 4}}}}));
  ASSERT_GT(run->ranks.size(), 1u);
  int64_t most = 0;
  for (const RankRun& r : run->ranks) most = std::max(most, r.cuda.reserved_peak);
  EXPECT_EQ(run->cuda().reserved_peak, most);
  EXPECT_EQ(execute(run->job, {}, {.all_ranks = false})->cuda().reserved_peak, most) << "the job asks about that rank now";
}

TEST(Ranks, WhatIsNotExecutedIsCounted) {
  EXPECT_EQ(ranks_of(small_gpt2({{"zero1", {{"world", 100}}}})).left_out, 36);
  EXPECT_EQ(ranks_of(small_gpt2({{"fsdp", {{"world", 1000}}}})).left_out, 0);
}

// One screen names one number: the estimate and the verdict are about the same rank of the same execution.
TEST(OneRun, AnEstimateAndItsVerdictAgree) {
  const TargetDevice card = target_device(find_device("rtx-4090"));
  for (const nlohmann::json& sharding :
       {nlohmann::json{{"zero1", {{"world", 3}}}}, nlohmann::json{{"zero1", {{"world", 7}}}}, nlohmann::json{{"fsdp", {{"world", 7}}}},
        nlohmann::json{{"zero", {{"world", 3}, {"stage", 2}}}}}) {
    Job job = job_of("t5-small", sharding);
    Runs runs;
    const Estimate e = estimate(runs, job, 10, card.spec);
    const Fit f = Fitting(runs, job).replay_on(card);
    ASSERT_TRUE(e.memory);
    EXPECT_EQ(e.memory->allocated.bytes.count, f.memory.allocated.bytes.count) << sharding;
    EXPECT_EQ(e.memory->reserved.bytes.count, f.memory.reserved.bytes.count) << sharding;
    EXPECT_EQ(e.memory->device.bytes.count, f.memory.device.bytes.count) << sharding;
    EXPECT_EQ(runs.executed(), 1u);
  }
}

TEST(OneRun, AJobIsExecutedOnceForAllQuestions) {
  const TargetDevice card = target_device(find_device("rtx-4090")), like = target_device(find_device("rtx-3090"));
  const Job job = small_gpt2();
  Runs runs;
  estimate(runs, job, 10, card.spec);
  Fitting(runs, job).replay_on(card);
  Fitting(runs, job).need_on(like);
  runs.execute(job, target_of(job, card.spec));
  EXPECT_EQ(runs.executed(), 1u);
  Job other = job;
  other.batch = 3;
  estimate(runs, other, 0, card.spec);
  EXPECT_EQ(runs.executed(), 2u) << "another job is another execution";
  Job half = job;
  half.platform.torch = {2, 1};
  estimate(runs, half, 0, card.spec);
  EXPECT_EQ(runs.executed(), 3u) << "and so is another version";
}

// Text that is no UTF-8 reaches a job from files and flags.
TEST(OneRun, AnyTextOfASettingIsPartOfTheQuestion) {
  Runs runs;
  for (const char* text : {"\xff", "\xfe"}) estimate(runs, small_gpt2({{"config", {{"note", text}}}}), 0);
  EXPECT_EQ(runs.executed(), 2u);
}

TEST(OneRun, AnEvaluationIsExecutedWhereTheJobHasOne) {
  EXPECT_EQ(estimate(small_gpt2(), 0).steps.size(), 2u);
  const Estimate with = estimate(small_gpt2({{"eval_batch", 64}}), 0);
  EXPECT_EQ(with.steps.back().name, "evaluation");
  const TargetDevice small = [&] {
    TargetDevice d = target_device(find_device("rtx-4090"));
    d.capacity = Capacity{with.memory->device.bytes, with.memory->device.bytes, with.memory->device.bytes, "test"};
    return d;
  }();
  EXPECT_NE(Fitting(small_gpt2({{"eval_batch", 64}})).replay_on(small).reason.find("evaluation decides it"), std::string::npos);
  EXPECT_EQ(Fitting(small_gpt2()).replay_on(small).reason.find("evaluation"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::program_run_test
