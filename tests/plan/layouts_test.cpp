// Layouts over many devices: every answer fits when it is executed again, nothing faster was left out, and what starts it can be read.
#include "plan/layouts.h"
#include "job/distribution.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "allocator/timeline.h"
#include "estimate/estimate.h"
#include "formats/document.h"
#include "formats/input.h"
#include "hardware/lookup.h"
#include "job/settings.h"
#include "plan/batches.h"
#include "plan/layout_kinds.h"
#include "plan/layout_launch.h"
#include "plan/layout_time.h"
#include "plan/lower_bound.h"
#include "program/program.h"
#include "report/layouts_report.h"
#include "shown.h"
#include "simulate.h"
#include "step/torchtitan_checks.h"
#include "support.h"

namespace plimsoll::layouts_test {
namespace {

TargetDevice card(double gib, const char* like = "a100-40gb-sxm") {
  TargetDevice d = target_device(find_device(like));
  const Bytes size{static_cast<int64_t>(gib * 1024 * 1024 * 1024)};
  d.capacity = Capacity{size, size, size, "as given"};
  return d;
}

Job with(const Job& job, const Patch& changes) { return patched(job, changes, "test"); }

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
  const Fit f = Fitting(l.job, {.all_ranks = false}).need_on(r.device);
  return f.verdict == Verdict::fits;
}

// What is left out without an execution must not have fitted.
TEST(LowerBound, IsBelowWhatIsExecutedForEveryKindOfSharding) {
  for (const auto& [setting, value] : std::vector<std::pair<std::string, std::string>>{{"ddp", "world=4"},
                                                                                       {"zero1", "world=4"},
                                                                                       {"fsdp", "world=4"},
                                                                                       {"fsdp", "world=4,no_sync=true"},
                                                                                       {"fsdp", "world=4,reshard=false"},
                                                                                       {"fsdp1", "world=4"},
                                                                                       {"fsdp1", "world=4,strategy=shard_grad_op"},
                                                                                       {"fsdp1", "world=4,strategy=no_shard"},
                                                                                       {"fsdp1", "world=4,offload=true"},
                                                                                       {"zero", "world=4,stage=1"},
                                                                                       {"zero", "world=4,reduce_bucket=1000000"},
                                                                                       {"zero", "world=4,offload_optimizer=true"},
                                                                                       {"zero", "world=4,stage=3"},
                                                                                       {"zero", "world=4,stage=3,offload_optimizer=true"},
                                                                                       {"zero", "world=4,stage=3,offload_param=true"},
                                                                                       {"tensor_parallel", "world=4"},
                                                                                       {"torchtitan", "world=4"},
                                                                                       {"torchtitan", "world=8,tensor=2,replicas=2"},
                                                                                       {"torchtitan", "world=8,reshard=never"},
                                                                                       {"torchtitan", "world=8,pipeline=2,context=2"},
                                                                                       {"torchtitan", "world=6,pipeline=3"}}) {
    const Simulation whole = simulate(small());
    for (const nlohmann::json& level : {nlohmann::json(false), nlohmann::json("save=torchtitan"), nlohmann::json(true)}) {
      Job job = with(small(), {{setting, value}, {"checkpointing", level}});
      if (job.parallel.deepspeed) job.precision = Precision::bf16;
      if (job.program.torchtitan) job.batch = 4;
      const Simulation rank = simulate(job);
      EXPECT_LE(lower_bound(job, whole.parameters).count, ideal_timeline(rank.trace).peak().bytes) << setting << ' ' << value << level;
      EXPECT_LE(whole_parameters(job, rank.parameters), whole.parameters) << setting << ' ' << value;
    }
  }
}

// Most of it, where activations are most of what is needed.
TEST(LowerBound, KnowsWhatBlocksKeep) {
  for (const char* precision : {"amp", "bf16", "fp32"})
    for (const nlohmann::json& level : {nlohmann::json(false), nlohmann::json("save=matmuls"), nlohmann::json(true)}) {
      const Job job = job_of("qwen3-0.6b", {{"seq", 2048}, {"batch", 8}, {"precision", precision}, {"checkpointing", level}});
      const Simulation s = simulate(job);
      const int64_t least = lower_bound(job, s.parameters).count, need = ideal_timeline(s.trace).peak().bytes;
      EXPECT_LE(least, need) << precision << level;
      if (level == false && job.precision != Precision::fp32) {
        EXPECT_GT(least, need / 5) << precision;
      }
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
    EXPECT_EQ(replica_count(l.job), l.replicas);
    if (i > 0) {
      EXPECT_GE(l.need.time->seconds, plan.fitting[i - 1].need.time->seconds);
    }
    if (kinds.insert(l.kind).second || i < 5) {
      EXPECT_TRUE(fits_again(l, r)) << l.changes.text();
    }
  }
  for (const LayoutKind& k : layout_kinds())
    if (std::string(k.name) != "torchtitan") {  // it has no model of this shape
      EXPECT_TRUE(kinds.contains(k.title)) << k.title;
    }
}

// Ranks that keep different shards: of three, the first of T5 with ZeRO-1 needs less than another.
TEST(Layouts, ThatAreShownNeedWhatEstimateSays) {
  LayoutRequest r = request_for(job_of("t5-small", {{"seq", 128}}), 3, 12);
  r.global_batch = 33;
  r.kinds = {"zero1", "zero", "fsdp2"};
  LayoutRequest stages = request_for(small(), 8, 12);
  stages.kinds = {"megatron", "fsdp1"};
  int larger = 0;
  for (const LayoutRequest& asked : {r, stages}) {
    const LayoutPlan plan = plan_layouts(asked);
    ASSERT_FALSE(plan.fitting.empty());
    std::set<std::string> kinds;
    for (size_t i = 0; i < plan.fitting.size(); ++i) {
      const Layout& l = plan.fitting[i];
      if (!kinds.insert(l.kind).second && i >= kShownLayouts) continue;
      ASSERT_TRUE(l.confirmed);
      const Job job = with(asked.job, l.changes);
      const Estimate e = estimate(job, 0, asked.device.spec);
      EXPECT_EQ(l.need.device.bytes, e.memory->device.bytes) << l.changes.text();
      EXPECT_EQ(l.need.device.high, e.memory->device.high) << l.changes.text();
      EXPECT_EQ(l.need.allocated, e.memory->allocated.bytes) << l.changes.text();
      larger += l.need.device.bytes > Fitting(job, {.all_ranks = false}).need_on(asked.device).memory.device.bytes;
    }
  }
  EXPECT_GT(larger, 0) << "the first rank alone would have done";
}

TEST(Layouts, CanBeCancelled) {
  LayoutRequest r = request_for(small(), 8, 12);
  r.progress = [](size_t, size_t, const char*) { return false; };
  EXPECT_THROW(plan_layouts(r), Cancelled);
}

TEST(Layouts, OfDeepSpeedAreItsThreeStages) {
  LayoutRequest r = request_for(job_of("llama-3.1-8b", {{"seq", 1024}, {"config", {{"num_hidden_layers", 12}}}}), 8, 80);
  r.kinds = {"zero"};
  std::map<int64_t, Bytes> least;  // by stage
  for (const Layout& l : plan_layouts(r).fitting) {
    const DeepSpeedSettings& d = *l.job.parallel.deepspeed;
    if (l.job.batch == 1 && !l.job.checkpointing.on && d.overlap_comm == (d.stage == 3)) least[d.stage] = l.need.allocated;
    EXPECT_EQ(l.job.precision, Precision::bf16);
    EXPECT_GT(l.need.time->communication, 0);
  }
  ASSERT_EQ(least.size(), 3u);
  EXPECT_LT(least[3], least[2]);
  EXPECT_LE(least[2], least[1]);
}

// Weights are gathered twice and gradients reduced once in every micro-step, over a network of which no kernel hides anything.
TEST(Layouts, Zero3MovesWhatFsdpDoesAndMoreThanZero2InEveryMicroStep) {
  const Job job = job_of("llama-3.1-8b",
                         {{"seq", 512}, {"precision", "bf16"}, {"batch", 1}, {"accumulation", 8}, {"config", {{"num_hidden_layers", 8}}}});
  const Cluster slow{8, 1e9};
  const DeviceSpec& device = find_device("h100-sxm");
  const auto seconds = [&](const char* setting, const char* value) {
    return step_time(with(job, {{setting, value}}), device, {}, slow).time->communication;
  };
  const double fsdp = seconds("fsdp", "world=64"), zero = seconds("zero", "world=64,stage=3");
  EXPECT_NEAR(zero / fsdp, 1, 0.15);
  EXPECT_GT(zero, 1.2 * seconds("zero", "world=64,stage=2,overlap_comm=true"));
  EXPECT_GT(seconds("zero", "world=64,stage=2"), seconds("zero", "world=64,stage=2,overlap_comm=true"));
}

LayoutRequest titan_request(int64_t world, const char* model = "llama-3.1-8b") {
  LayoutRequest r = request_for(job_of(model, {{"seq", 8192}}), world, 80);
  r.device = target_device(find_device("h100-sxm"));
  r.global_batch = 4 * world;
  r.kinds = {"torchtitan"};
  return r;
}

TEST(TorchtitanLayouts, AreThoseThatItsTrainerTakes) {
  const LayoutRequest r = titan_request(32);
  std::set<std::string> seen;
  for (const Spread& s : torchtitan_spreads(r).all) {
    const Job job = with(r.job, merged(s.settings, {{"batch", s.pipeline}}));
    EXPECT_TRUE(problems(job).empty()) << s.settings.text();
    const TorchtitanSettings& t = *job.program.torchtitan;
    EXPECT_EQ(t.world, 32);
    EXPECT_EQ(t.data(), s.replicas);
    EXPECT_EQ(8 % t.tensor, 0) << "heads of keys and values";
    EXPECT_GE(r.job.seq / t.context, 4096);
    EXPECT_TRUE(seen.insert(s.settings.text()).second) << s.settings.text();
    if (t.replicas > 1) {
      EXPECT_EQ(t.shards() * t.tensor * t.replicas, 32 / t.pipeline);
    }
  }
  for (const char* part : {"\"tensor\":8", "\"pipeline\":16", "\"context\":2", "\"virtual_stages\":2", "\"replicas\":4", "\"never\""})
    EXPECT_TRUE(std::any_of(seen.begin(), seen.end(), [&](const std::string& s) { return s.find(part) != std::string::npos; })) << part;
}

// One batch goes through a pipeline: its micro-batches are what others accumulate.
TEST(TorchtitanLayouts, FitWhenExecutedAgainAndMakeTheGlobalBatch) {
  LayoutRequest r = titan_request(16);
  const LayoutPlan plan = plan_layouts(r);
  ASSERT_FALSE(plan.fitting.empty());
  std::set<std::string> again;
  for (const Layout& l : plan.fitting) {
    const TorchtitanSettings& t = *l.job.program.torchtitan;
    EXPECT_EQ(l.job.batch * l.job.accumulation * t.data(), 64);
    if (t.pipelined()) {
      EXPECT_EQ(l.job.accumulation, 1);
      EXPECT_GE(t.micro_batches, t.pipeline);
      EXPECT_GT(l.need.time->bubble, 0);
    } else {
      EXPECT_EQ(l.need.time->bubble, 0);
    }
    const std::string kind = fmt::format("{} {} {}", t.tensor, t.pipeline, t.context);
    if (again.insert(kind).second) {
      EXPECT_TRUE(fits_again(l, r)) << l.changes.text();
    }
  }
}

TEST(TorchtitanLayouts, AreNoneOfOtherModelsAndOptimizers) {
  EXPECT_EQ(torchtitan_spreads(titan_request(8, "llama-3.2-1b")).why_none, "torchtitan has no model of this shape");
  EXPECT_EQ(torchtitan_spreads(titan_request(8, "gpt2")).why_none, "torchtitan has no model of this shape");
  LayoutRequest r = titan_request(8);
  r.job = with(r.job, {{"config", {{"num_hidden_layers", 31}}}});
  EXPECT_EQ(torchtitan_spreads(r).why_none, "torchtitan has no model of this shape");
  r = titan_request(8);
  r.job.optimizer.name = "Lion";
  EXPECT_EQ(torchtitan_spreads(r).why_none, "torchtitan knows Adam and AdamW alone");
}

// A bubble is what the other stages of a micro-batch take; more micro-batches and chunks make it smaller, slow links cost more.
TEST(TorchtitanLayouts, TimeFollowsScheduleAndLinks) {
  const Job base = with(job_of("llama-3.1-8b", {{"seq", 8192}, {"precision", "fp32"}}), {{"batch", 16}});
  const DeviceSpec& device = find_device("h100-sxm");
  const auto time = [&](const char* layout, double network = 40e9, int64_t batch = 16) {
    return *step_time(with(base, {{"torchtitan", layout}, {"batch", batch}}), device, {}, {8, network}).time;
  };
  const StepTime plain = time("world=32,pipeline=4,stage=1"), chunks = time("world=32,pipeline=4,virtual_stages=2,stage=1"),
                 large = time("world=32,pipeline=4,micro_batches=4,stage=1");
  const double compute = compute_seconds(plain);
  EXPECT_NEAR(plain.bubble, compute * 3 / 16, 1e-9 * compute);
  EXPECT_NEAR(large.bubble, compute_seconds(large) * 3 / 4, 1e-9 * compute);
  EXPECT_LT(chunks.bubble, 0.6 * plain.bubble);
  EXPECT_NEAR(large.model_flops, plain.model_flops, 0.02 * plain.model_flops) << "the same samples";
  for (const char* layout : {"world=32", "world=32,tensor=8", "world=32,context=2", "world=32,replicas=4", "world=32,pipeline=4"}) {
    EXPECT_GT(time(layout).communication, 0) << layout;
    EXPECT_GT(time(layout, 2e9).communication, time(layout).communication) << layout;
  }
  EXPECT_GT(time("world=32,tensor=8").communication, time("world=32,tensor=2").communication);
  EXPECT_LT(time("world=32,replicas=4", 1e9, 1).communication, time("world=32", 1e9, 1).communication) << "gathers stay in a node";
}

// What is generated says the layout: read back, it is the same run.
TEST(LayoutFiles, ReadBackAsWhatWasPlanned) {
  for (const char* layout : {"world=16,tensor=2", "world=16,pipeline=4,virtual_stages=2,micro_batches=8", "world=16,context=2,replicas=2",
                             "world=16,pipeline=2,tensor=4,micro_batches=4", "world=16,reshard=never"})
    for (const nlohmann::json& level : {nlohmann::json(false), nlohmann::json("save=torchtitan"), nlohmann::json(true)}) {
      Layout l;
      l.changes = {{"torchtitan", layout}, {"precision", "fp32"}, {"checkpointing", level}, {"batch", 8}, {"clip", 1}};
      l.job = with(job_of("llama-3.1-8b", {{"seq", 8192}}), l.changes);
      l.global_batch = 8 * l.job.program.torchtitan->data();
      const std::string text = layout_file("torchtitan").text(l, 8);
      Job read;
      read_input_document(read, parse_document(text, "train.toml"));
      for (const char* key : {"torchtitan", "batch", "accumulation", "seq", "checkpointing", "clip", "optimizer", "precision"})
        EXPECT_EQ(value_of(read, key), value_of(l.job, key)) << key << "\n" << text;
      EXPECT_EQ(read.model, "llama-3.1-8b");
      EXPECT_NE(launch_line(l, 8).find("--parallelism.tensor_parallel_degree"), std::string::npos);
    }
}

TEST(LayoutFiles, OfDeepSpeedSayTheStageAndWhatIsNotItsDefault) {
  for (const char* zero : {"world=8,stage=1", "world=8,stage=2,overlap_comm=true", "world=8,stage=3"}) {
    Layout l;
    l.changes = {{"zero", zero}, {"precision", "bf16"}, {"batch", 2}, {"accumulation", 4}};
    l.job = with(small(), l.changes);
    Job read;
    apply_setting(read, "ddp", {{"world", 8}}, "launcher");
    const std::string text = layout_file("deepspeed").text(l, 8);
    read_input_document(read, parse_document(text, "ds_config.json"));
    for (const char* key : {"zero", "batch", "accumulation", "precision"}) EXPECT_EQ(value_of(read, key), value_of(l.job, key)) << text;
    const LayoutFile& accelerate = layout_file("accelerate");
    const bool plain = std::string(zero).find("overlap") == std::string::npos;
    ASSERT_EQ(accelerate.says(l), plain) << zero;
    if (!plain) continue;
    Job launched;
    read_input_document(launched, parse_document(accelerate.text(l, 8), "accelerate.yaml"));
    for (const char* key : {"zero", "accumulation", "precision"})
      EXPECT_EQ(value_of(launched, key), value_of(l.job, key)) << accelerate.text(l, 8);
  }
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
      for (const Spread& s : kind.spreads(r).all)
        for (const nlohmann::json& level : kind.checkpointing)
          for (const Split& split : splits_of(32, s.replicas)) {
            Job candidate =
                with(job, merged(s.settings, {{"batch", split.batch}, {"accumulation", split.accumulation}, {"checkpointing", level}}));
            Fitting fitting(candidate, {.work = true, .all_ranks = false});
            if (fitting.need_on(r.device).verdict != Verdict::fits) continue;
            best = std::min(best, step_time(candidate, fitting.run(r.device)->simulation, r.device.spec).time->seconds);
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
  for (const Layout& l : plan.fitting) EXPECT_TRUE(l.kind != "Megatron-LM" && l.kind != "torchtitan") << l.kind;
  EXPECT_TRUE(std::any_of(plan.left_out.begin(), plan.left_out.end(), [](const auto& k) { return k.first == "Megatron-LM"; }));
}

TEST(Layouts, SayWhatIsMissingAndWhatWouldFit) {
  const LayoutPlan plan = plan_layouts(request_for(small(), 2, 2.5));
  EXPECT_TRUE(plan.fitting.empty());
  ASSERT_TRUE(plan.smallest);
  ASSERT_FALSE(plan.would_fit.empty());
  EXPECT_NE(shown(layouts_document(plan)).find("What would fit"), std::string::npos);
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
  r.kinds = {"torchtitan"};
  const std::string alone = error_of([&] { plan_layouts(r); });
  EXPECT_NE(alone.find("no layout of 8 ranks is possible. torchtitan: torchtitan has no model of this shape"), std::string::npos) << alone;
  r = request_for(small(), 7, 9);
  r.global_batch = 3;
  EXPECT_NE(error_of([&] { plan_layouts(r); }), "");
}

}  // namespace
}  // namespace plimsoll::layouts_test
