// Invariants of an estimate: children sum to their parent, and the same job gives the same bytes from any thread.
#include "estimate/estimate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <thread>

#include "model/resolve.h"
#include "report/estimate_report.h"
#include "simulate.h"
#include "step/train.h"

namespace plimsoll::estimate_test {
namespace {

Job small_job(const char* model) {
  Job job;
  job.model = model;
  job.batch = 2;
  job.seq = 64;
  job.origin["seq"] = "test";
  resolve_model(job);
  return job;
}

void expect_children_sum(const TreeNode& node) {
  if (node.children.empty()) return;
  Bytes sum;
  for (const TreeNode& child : node.children) {
    sum += child.bytes;
    expect_children_sum(child);
  }
  EXPECT_EQ(sum.count, node.bytes.count) << node.name;
}

TEST(Estimate, ChildrenSumToTheirParentInBothTrees) {
  for (const char* model : {"gpt2", "llama-3.2-1b"}) {
    const Estimate e = estimate(small_job(model));
    EXPECT_EQ(e.by_category.bytes, e.peak);
    EXPECT_EQ(e.by_module.bytes, e.peak);
    expect_children_sum(e.by_category);
    expect_children_sum(e.by_module);
  }
}

TEST(Estimate, BlocksHoldTheTensorsAndSegmentsHoldTheBlocks) {
  const Estimate e = estimate(small_job("gpt2"));
  EXPECT_GE(e.memory->allocated.bytes, e.peak);
  EXPECT_GE(e.memory->reserved.bytes, e.memory->allocated.bytes);
  EXPECT_GE(e.memory->device.bytes, e.memory->reserved.bytes);
}

TEST(Estimate, IsTheSameFromRunToRunAndFromAnyThread) {
  const Job job = small_job("gpt2");
  const std::string once = estimate_json(estimate(job)).dump();
  std::vector<std::string> others(4);
  std::vector<std::thread> threads;
  for (std::string& other : others) threads.emplace_back([&] { other = estimate_json(estimate(job)).dump(); });
  for (std::thread& t : threads) t.join();
  for (const std::string& other : others) EXPECT_EQ(other, once);
}

TEST(Trace, EveryAllocationIsFreedOnceOrLivesToTheEnd) {
  const Simulation s = simulate(small_job("gpt2"));
  std::vector<int> alive(s.trace.storages.size());
  for (const Event& e : s.trace.events) {
    if (e.kind == Event::Kind::alloc) {
      ASSERT_EQ(alive[e.storage]++, 0);
    } else if (e.kind == Event::Kind::free) {
      ASSERT_EQ(alive[e.storage]--, 1);
    }
  }
}

TEST(Trace, MicroStepsAfterTheSecondAddNothing) {
  Job job = small_job("gpt2");
  job.accumulation = 2;
  const Bytes two = estimate(job).peak;
  for (int64_t n : {3, 4, 100}) {
    job.accumulation = n;
    EXPECT_EQ(estimate(job).peak, two) << n;
  }
}

TEST(Trace, NothingOfOneStepOutlivesTheNext) {
  Job job = small_job("gpt2");
  job.steps = 4;
  const Estimate e = estimate(job);
  EXPECT_EQ(e.steps[1].peak, e.steps[2].peak);
  EXPECT_EQ(e.steps[2].peak, e.steps[3].peak);
}

}  // namespace
}  // namespace plimsoll::estimate_test
