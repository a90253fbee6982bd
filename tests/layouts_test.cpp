// Layouts over many devices: every answer fits when it is executed again, nothing faster was left out, and what starts it can be read.
#include "plan/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "allocator/timeline.h"
#include "hardware/lookup.h"
#include "plan/batches.h"
#include "plan/layout_kinds.h"
#include "plan/layout_launch.h"
#include "plan/least_need.h"
#include "report/layouts_report.h"
#include "support.h"

namespace plimsoll::layouts_test {
namespace {

TargetDevice card(double gib, const char* like = "a100-40gb-sxm") {
  TargetDevice d = target_device(find_device(like));
  const Bytes size{static_cast<int64_t>(gib * 1024 * 1024 * 1024)};
  d.capacity = Capacity{size, size, size, "as given"};
  return d;
}

Job small() { return job_of("llama-3.2-1b", {{"seq", 1024}, {"config", {{"num_hidden_layers", 4}, {"vocab_size", 32000}}}}); }

LayoutRequest request_for(const Job& job, int64_t world, double gib) {
  LayoutRequest r;
  r.job = job;
  r.device = card(gib);
  r.world = world;
  r.global_batch = 32;
  return r;
}

bool fits_again(const Layout& l, const LayoutRequest& r) {
  Job job = l.job;
  if (!job.parallel.megatron) job.eval_batch = job.batch;
  const Fit f = Fitting(job).need(r.device);
  return f.verdict == Verdict::fits;
}

// What is left out without an execution must not have fitted.
TEST(LeastNeed, IsBelowWhatIsExecutedForEveryKindOfSharding) {
  for (const auto& [setting, value] : std::vector<std::pair<std::string, std::string>>{{"ddp", "world=4"},
                                                                                       {"zero1", "world=4"},
                                                                                       {"fsdp", "world=4"},
                                                                                       {"fsdp", "world=4,no_sync=true"},
                                                                                       {"fsdp1", "world=4"},
                                                                                       {"fsdp1", "world=4,strategy=shard_grad_op"},
                                                                                       {"fsdp1", "world=4,strategy=no_shard"},
                                                                                       {"fsdp1", "world=4,offload=true"},
                                                                                       {"zero", "world=4,stage=1"},
                                                                                       {"zero", "world=4,reduce_bucket=1000000"},
                                                                                       {"zero", "world=4,offload_optimizer=true"},
                                                                                       {"tensor_parallel", "world=4"},
                                                                                       {"torchtitan", "world=4"}}) {
    const Simulation whole = simulate(small());
    const Job job = with(small(), {{setting, value}});
    const Simulation rank = simulate(job);
    EXPECT_LE(least_need(job, whole.parameters).count, ideal_timeline(rank.trace).peak().bytes) << setting << ' ' << value;
    EXPECT_LE(whole_parameters(job, rank.parameters), whole.parameters) << setting << ' ' << value;
  }
}

TEST(Layouts, FitWhenExecutedAgainAndTheFastestComesFirst) {
  const LayoutRequest r = request_for(small(), 8, 12);  // enough for a whole model on each device, as DDP has it
  const LayoutPlan plan = plan_layouts(r);
  std::set<std::string> kinds;
  ASSERT_FALSE(plan.fitting.empty());
  for (size_t i = 0; i < plan.fitting.size(); ++i) {
    const Layout& l = plan.fitting[i];
    EXPECT_EQ(l.global_batch, 32);
    EXPECT_EQ(l.job.parallel.replicas(), l.replicas);
    if (i > 0) {
      EXPECT_GE(l.need.time->seconds, plan.fitting[i - 1].need.time->seconds);
    }
    if (kinds.insert(l.kind).second || i < 5) {
      EXPECT_TRUE(fits_again(l, r)) << l.changes.dump();
    }
  }
  for (const LayoutKind& k : layout_kinds()) EXPECT_TRUE(kinds.contains(k.title)) << k.title;
}

// What was left out because something smaller did not fit, or fits without recomputation, is neither faster nor smaller.
TEST(Layouts, EqualBruteForce) {
  const Job job = small();
  for (const double gib : {5.0, 7.0, 12.0}) {
    LayoutRequest r = request_for(job, 8, gib);
    r.kinds = {"ddp", "zero1", "zero", "fsdp1", "fsdp2", "fsdp2_tp"};
    const LayoutPlan plan = plan_layouts(r);
    double best = std::numeric_limits<double>::infinity();
    for (const LayoutKind& kind : layout_kinds()) {
      if (!r.kinds.contains(kind.name)) continue;
      for (const Spread& s : kind.spreads(r))
        for (const nlohmann::json& level : kind.checkpointing)
          for (const Split& split : splits_of(32, s.replicas)) {
            Job candidate =
                with(job, merged(s.settings, {{"batch", split.batch}, {"accumulation", split.accumulation}, {"checkpointing", level}}));
            candidate.eval_batch = candidate.batch;
            Fitting fitting(candidate, true);
            if (fitting.need(r.device).verdict != Verdict::fits) continue;
            best = std::min(best, step_time(candidate, fitting.simulation(r.device), r.device.spec).time->seconds);
          }
    }
    ASSERT_EQ(plan.fitting.empty(), !std::isfinite(best)) << gib;
    if (!plan.fitting.empty()) {
      EXPECT_NEAR(plan.fitting.front().need.time->seconds, best, best * 1e-9) << gib;
    }
  }
}

TEST(Layouts, AreTheSameEveryTime) {
  const LayoutRequest r = request_for(small(), 4, 9);
  EXPECT_EQ(layouts_json(plan_layouts(r)).dump(), layouts_json(plan_layouts(r)).dump());
}

TEST(Layouts, OfOtherModelsAreThoseOfPyTorch) {
  LayoutRequest r = request_for(job_of("resnet50", {{"batch", 64}}), 8, 16);
  r.global_batch = 0;
  const LayoutPlan plan = plan_layouts(r);
  EXPECT_EQ(plan.global_batch, 64);
  ASSERT_FALSE(plan.fitting.empty());
  for (const Layout& l : plan.fitting) EXPECT_NE(l.kind, "Megatron-LM");
  EXPECT_TRUE(std::any_of(plan.left_out.begin(), plan.left_out.end(), [](const auto& k) { return k.first == "Megatron-LM"; }));
}

TEST(Layouts, SayWhatIsMissingAndWhatWouldFit) {
  const LayoutPlan plan = plan_layouts(request_for(small(), 2, 2.5));
  EXPECT_TRUE(plan.fitting.empty());
  ASSERT_TRUE(plan.smallest);
  ASSERT_FALSE(plan.would_fit.empty());
  EXPECT_NE(layouts_text(plan, Style{}).find("What would fit"), std::string::npos);
}

TEST(Layouts, TakeAsFewDevicesAsWillDo) {
  LayoutRequest r = request_for(small(), 16, 3.6);
  const LayoutPlan plan = plan_fewest_devices(r);
  ASSERT_FALSE(plan.fitting.empty());
  EXPECT_GT(plan.request.world, 1);
  r.world = plan.request.world / 2;
  EXPECT_TRUE(plan_layouts(r).fitting.empty());
}

// Of layouts that gather each block twice: one copy of the weights in each of four nodes, or one over all of them.
TEST(Layouts, SlowNetworksFavourCopiesInsideANode) {
  LayoutRequest r = request_for(small(), 32, 40);
  r.kinds = {"fsdp2"};
  const auto seconds = [&](double network, int64_t copies) {
    r.cluster.network = network;
    for (const Layout& l : plan_layouts(r).fitting) {
      const FsdpSettings& f = *l.job.parallel.fsdp;
      if (f.replicas == copies && f.reshard && f.reshard_to == 0 && !l.job.checkpointing.on) return l.need.time->seconds;
    }
    return 0.0;
  };
  EXPECT_GT(seconds(1e9, 4), 0);
  EXPECT_LT(seconds(1e9, 4), seconds(1e9, 1));
  EXPECT_LT(seconds(40e9, 1), seconds(1e9, 1));
}

TEST(Layouts, RefuseWhatMakesNoSense) {
  LayoutRequest r = request_for(small(), 8, 9);
  r.kinds = {"fsdp22"};
  EXPECT_NE(error_of([&] { plan_layouts(r); }).find("did you mean 'fsdp2'"), std::string::npos);
  EXPECT_NE(error_of([] { layout_file("torchrum"); }).find("did you mean 'torchrun'"), std::string::npos);
  r = request_for(small(), 7, 9);
  r.global_batch = 3;
  EXPECT_NE(error_of([&] { plan_layouts(r); }), "");
}

}  // namespace
}  // namespace plimsoll::layouts_test
