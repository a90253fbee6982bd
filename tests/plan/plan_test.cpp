// Plans: what is found was executed, is the best there is, and stays below the limit.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>

#include "hardware/lookup.h"
#include "plan/placement.h"
#include "plan/quick_fixes.h"
#include "plan/short_runs.h"
#include "plan/supported_space.h"
#include "report/plan_report.h"
#include "shown.h"
#include "support.h"

namespace plimsoll::plan_test {
namespace {

// A card with the rates of one of the catalogue and memory as the test wants it.
TargetDevice card(double gib, const char* like = "rtx-4090") {
  TargetDevice d = target_device(find_device(like));
  const Bytes size{static_cast<int64_t>(gib * 1024 * 1024 * 1024)};
  d.capacity = Capacity{size, size, size, "as given"};
  return d;
}

PlanRequest request_for(const Job& job) {
  PlanRequest r;
  r.job = job;
  return r;
}

Plan plan_for(const PlanRequest& r, const TargetDevice& d) { return make_plans(r, {d}).front(); }

const std::set<std::string> kAllButActivations{"precision", "optimizer", "update", "adapter", "swap", "ema", "ddp", "offload", "allocator"};

bool fits_again(const PlannedRun& run, const Plan& plan) {
  const Fit f = Fitting(run.job).replay_on(plan.device);
  return f.verdict == Verdict::fits && f.memory.device.high <= plan.limit && f.memory.device.bytes == run.need.device.bytes;
}

TEST(Batches, MakeTheGlobalBatchExactlyWhereTheDevicesDivideIt) {
  const std::vector<Split> expected{{1, 64}, {2, 32}, {4, 16}, {8, 8}, {16, 4}, {32, 2}, {64, 1}};
  EXPECT_EQ(splits_of(256, 4), expected);
  EXPECT_EQ(splits_of(7, 1), (std::vector<Split>{{1, 7}, {7, 1}}));
  for (const Split& s : splits_of(5040, 6)) EXPECT_EQ(global_batch(s, 6), 5040);
}

TEST(Batches, NameTheNearestWhereTheyDoNot) {
  const std::vector<Split> three = splits_of(256, 3);
  EXPECT_TRUE(std::count(three.begin(), three.end(), (Split{4, 21})));  // 252
  EXPECT_TRUE(std::count(three.begin(), three.end(), (Split{5, 17})));  // 255
  for (const Split& s : three) EXPECT_LE(std::abs(global_batch(s, 3) - 256), 5);
  EXPECT_FALSE(splits_of(2, 3).empty());  // fewer samples than devices
  EXPECT_EQ(nearest_split(256, 4, 3), (Split{3, 21}));
  EXPECT_EQ(nearest_split(4, 8, 2), (Split{2, 1}));
}

TEST(Placements, AreWrittenAsRanges) {
  EXPECT_EQ(as_ranges({"h.3", "h.0", "h.1", "h.2", "h.7", "mid", "g.1"}), (std::vector<std::string>{"g.1", "h.0-3", "h.7", "mid"}));
  EXPECT_EQ(as_ranges({}), std::vector<std::string>{});
}

TEST(Placements, OfRangesAreThoseOfTheirBlocks) {
  const auto peak = [](const nlohmann::json& checkpointing) {
    return Fitting(job_of("gpt2", {{"batch", 4}, {"checkpointing", checkpointing}})).need_on(card(24)).memory.allocated.bytes.count;
  };
  const int64_t none = peak(false), all = peak(true);
  EXPECT_EQ(peak({{"modules", {"h.0-11"}}}), all);
  EXPECT_EQ(peak({{"modules", {"h.0-2"}}}), peak({{"modules", {"h.0", "h.1", "h.2"}}}));
  EXPECT_LT(peak({{"modules", {"h.0-5"}}}), none);
  EXPECT_GT(peak({{"modules", {"h.0-5"}}}), all);
  EXPECT_NE(error_of([&] { peak({{"modules", {"h.20-30"}}}); }), "");
}

// Every batch, every number of checkpointed blocks, every way to compute the loss, with and without what is free.
void expect_brute_force(const Job& job, const std::vector<double>& cards, int least_found) {
  PlanRequest r = request_for(job);
  r.brief = true;
  r.constraints.keep = kAllButActivations;
  const Space space = space_of(job, r.constraints, card(24));
  const std::vector<BlockCost> blocks = block_costs(job, find_device("rtx-4090"));
  const Placement placement(blocks);
  ASSERT_GT(placement.blocks(), 0u);
  std::vector<nlohmann::json> levels{false};
  for (size_t k = 1; k <= placement.blocks(); ++k) {
    levels.push_back(placement.level(k, false));
    levels.push_back(placement.level(k, true));
    if (k > 1) levels.push_back({{"every", k}});
  }
  std::vector<Patch> all;
  for (const Split& split : splits_of(space, job))
    for (const nlohmann::json& level : levels)
      for (const Choice& loss : space.losses)
        for (const Patch& free : {Patch(), space.free})
          all.push_back(
              merged(merged(free, loss.changes), {{"batch", split.batch}, {"accumulation", split.accumulation}, {"checkpointing", level}}));
  std::vector<TargetDevice> devices;
  for (const double gib : cards) devices.push_back(card(gib));
  Evaluator evaluator(job, devices);
  evaluator.prepare(all);
  const std::vector<Plan> plans = make_plans(r, devices);
  int found = 0;
  for (size_t d = 0; d < devices.size(); ++d) {
    double best = std::numeric_limits<double>::infinity();
    std::string where;
    for (const Patch& c : all) {
      const Candidate& candidate = evaluator.evaluate(c);
      if (candidate.needs.empty() || candidate.needs[d].verdict != Verdict::fits || seconds_per_sample(candidate, d) >= best) continue;
      best = seconds_per_sample(candidate, d);
      where = to_string(devices[d].capacity->bytes) + ": " + c.text();
    }
    if (plans[d].best) where += ", found " + plans[d].best->run.changes.text();
    ASSERT_EQ(plans[d].best.has_value(), std::isfinite(best)) << where;
    if (!plans[d].best) continue;
    ++found;
    EXPECT_LE(plans[d].best->run.need.time->seconds / static_cast<double>(plans[d].best->run.global_batch), best * (1 + 1e-9)) << where;
  }
  EXPECT_GE(found, least_found) << job.model;
}

TEST(Plans, EqualBruteForceOnSmallSpaces) {
  expect_brute_force(job_of("gpt2", {{"batch", 16}, {"seq", 512}, {"config", {{"n_layer", 4}}}}),
                     {2.2, 2.6, 3.0, 3.5, 4.0, 5.0, 6.5, 8.0, 16.0}, 6);
  expect_brute_force(job_of("qwen2.5-0.5b", {{"batch", 6}, {"seq", 512}, {"config", {{"num_hidden_layers", 3}}}}),
                     {3.0, 4.0, 5.0, 6.0, 8.0, 16.0}, 3);
  expect_brute_force(job_of("vit-b16", {{"batch", 8}, {"config", {{"num_hidden_layers", 3}}}}), {0.9, 1.1, 1.3, 1.6, 2.5}, 2);
}

// Optimizers, their place, losses and offloads: what the search does not execute could not have won.
TEST(Plans, EqualBruteForceOverEveryRecipe) {
  const Job job = job_of("gpt2", {{"batch", 4}, {"seq", 256}, {"precision", "fp32"}, {"config", {{"n_layer", 2}}}});
  PlanRequest r = request_for(job);
  r.brief = true;
  r.constraints.keep = {"adapter", "checkpointing", "batch"};
  std::vector<TargetDevice> devices;
  for (const double gib : {1.2, 1.4, 1.7, 2.0, 2.5, 3.5}) devices.push_back(card(gib));
  const Space space = space_of(job, r.constraints, devices[0]);
  Evaluator evaluator(job, devices);
  std::vector<std::pair<Patch, LeverKind>> all;
  for (const Choice& g : space.groups)
    for (const Choice& l : space.losses)
      for (const Choice& o : space.offloads)
        for (const Patch& free : {Patch(), space.free})
          all.emplace_back(merged(merged(merged(free, g.changes), l.changes), o.changes), std::max({g.kind, l.kind, o.kind}));
  int found = 0;
  const std::vector<Plan> plans = make_plans(r, devices);
  for (size_t d = 0; d < devices.size(); ++d) {
    if (!plans[d].best) continue;
    ++found;
    double best = std::numeric_limits<double>::infinity();
    for (const auto& [recipe, kind] : all) {
      const Candidate& c = evaluator.evaluate(recipe);
      if (kind <= plans[d].best->kind && !c.needs.empty() && c.needs[d].verdict == Verdict::fits)
        best = std::min(best, seconds_per_sample(c, d));
    }
    const PlannedRun& run = plans[d].best->run;
    EXPECT_LE(run.need.time->seconds / static_cast<double>(run.global_batch), best * (1 + 1e-9)) << to_string(plans[d].limit);
  }
  EXPECT_GE(found, 3);
}

// A loop over tokens in Python: searched on short sequences, answered in full.
TEST(Plans, OfLoopsOverTokensAreExecutedInFull) {
  const Job job = job_of("mamba-trainer", {{"batch", 4},
                                           {"accumulation", 2},
                                           {"seq", 1536},
                                           {"precision", "fp32"},
                                           {"config", {{"d_model", 256}, {"n_layers", 3}, {"vocab_size", 256}, {"max_seq_len", 1536}}}});
  EXPECT_TRUE(loops_over_tokens(job));
  EXPECT_FALSE(loops_over_tokens(job_of("gpt2", {{"seq", 1024}})));
  Evaluator evaluator(job, {card(24)}, {}, {}, true);
  EXPECT_TRUE(evaluator.evaluate(Patch()).extrapolated);
  evaluator.confirm({Patch()});
  const Candidate& now = evaluator.evaluate(Patch());
  ASSERT_FALSE(now.extrapolated);
  const Need &thought = now.comparable()[0], &full = now.needs[0];
  EXPECT_NEAR(static_cast<double>(thought.allocated.count), static_cast<double>(full.allocated.count), 0.03 * full.allocated.count);
  EXPECT_NEAR(thought.time->seconds, full.time->seconds, 0.03 * full.time->seconds);
  PlanRequest r = request_for(job);
  r.constraints.keep = {"precision", "optimizer", "adapter"};
  const Plan p = plan_for(r, card(0.6 * static_cast<double>(full.device.high.count) / (1 << 30)));
  ASSERT_TRUE(p.best);
  EXPECT_FALSE(p.best->run.extrapolated || p.as_is.extrapolated);
  EXPECT_TRUE(fits_again(p.best->run, p));
  EXPECT_FALSE(p.fixes.empty());
}

TEST(Plans, StayBelowTheLimitWhenExecutedAgain) {
  const std::pair<const char*, nlohmann::json> jobs[]{{"gpt2", {{"batch", 64}}},
                                                      {"resnet50", {{"batch", 256}}},
                                                      {"bert-base-uncased", {{"batch", 48}, {"seq", 512}}},
                                                      {"t5-small", {{"batch", 32}, {"seq", 512}, {"precision", "fp32"}}},
                                                      {"sd-1.5-unet", {{"batch", 4}}}};
  for (const auto& [model, settings] : jobs) {
    PlanRequest r = request_for(job_of(model, settings));
    r.brief = std::string(model) != "resnet50";
    for (const Plan& p : make_plans(r, {card(8), card(12), card(24), card(80)})) {
      if (p.best) {
        EXPECT_TRUE(fits_again(p.best->run, p)) << model << " on " << to_string(p.limit);
        EXPECT_EQ(p.best->run.global_batch, r.job.batch) << model;
      } else {
        ASSERT_TRUE(p.shortage) << model;
        EXPECT_GT(p.shortage->missing.count, 0);
      }
      for (const Alternative& a : p.alternatives) EXPECT_TRUE(fits_again(a.run, p)) << model;
      for (const Rung& g : p.up) EXPECT_TRUE(fits_again(g.run, p)) << model << " " << g.name;
    }
  }
}

TEST(Plans, AreTheSameEveryTime) {
  const PlanRequest r = request_for(job_of("gpt2", {{"batch", 32}, {"seq", 512}, {"config", {{"n_layer", 4}}}}));
  const std::string first = plan_json(plan_for(r, card(6))).dump();
  EXPECT_EQ(plan_json(plan_for(r, card(6))).dump(), first);
}

// Room that costs next to no time is left; what would take longer is not.
TEST(Plans, LeaveRoomWhereItCostsNextToNoTime) {
  const Job job = job_of("gpt2", {{"batch", 16}, {"seq", 512}, {"config", {{"n_layer", 6}}}});
  for (const double gib : {2.5, 3.0, 3.5, 4.0, 5.0}) {
    PlanRequest r = request_for(job);
    r.brief = true;
    const Plan full = plan_for(r, card(gib));
    r.prefer_free = 0.03;
    const Plan roomy = plan_for(r, card(gib));
    ASSERT_EQ(full.best.has_value(), roomy.best.has_value()) << gib;
    if (!full.best) continue;
    EXPECT_EQ(roomy.best->kind, full.best->kind) << gib;
    EXPECT_LE(roomy.best->run.need.time->seconds, 1.02 * full.best->run.need.time->seconds) << gib;
    const auto within = [&](const Plan& p) {
      return static_cast<double>(p.best->run.need.device.high.count) <= 0.97 * static_cast<double>(p.limit.count);
    };
    EXPECT_TRUE(!within(full) || roomy.best->run.changes == full.best->run.changes) << gib;
    EXPECT_TRUE(within(roomy) || roomy.best->run.changes == full.best->run.changes) << gib;
  }
}

// What a plan does to training, and another global batch, is said before anything else.
TEST(Plans, SayInTheirFirstLinesWhatTheyDoToTraining) {
  PlanRequest r = request_for(job_of("gpt2", {{"seq", 256}, {"config", {{"n_layer", 3}}}}));
  r.brief = true;
  const Plan free = plan_for(r, card(4));
  ASSERT_TRUE(free.best);
  ASSERT_GT(free.best->run.global_batch, 1);
  EXPECT_NE(change_text(free).find("The global batch becomes"), std::string::npos) << change_text(free);
  r.constraints.keep = {"checkpointing", "offload", "update", "loss", "output", "attention", "allocator", "batch"};
  r.job = job_of("gpt2", {{"batch", 1}, {"seq", 64}, {"precision", "fp32"}, {"config", {{"n_layer", 3}}}});
  const Plan other = plan_for(r, card(0.62 * static_cast<double>(plan_for(r, card(80)).as_is.need.device.high.count) / (1 << 30)));
  ASSERT_TRUE(other.best && other.best->kind != LeverKind::same_result);
  EXPECT_TRUE(change_text(other).starts_with("This plan means different ")) << change_text(other);
  EXPECT_LT(shown(plan_document(other)).find("This plan means"), shown(plan_document(other)).find("as it is"));
  const Plan same = plan_for(request_for(job_of("gpt2", {{"batch", 1}, {"optimizer_args", {{"fused", true}}}})), card(80));
  EXPECT_EQ(change_text(same), "");
}

// Of the expected need; the upper end is named beside it.
TEST(Plans, GivePercentagesOfTheExpectedNeed) {
  PlanRequest r = request_for(job_of("gpt2", {{"batch", 8}, {"seq", 256}, {"config", {{"n_layer", 3}}}}));
  r.brief = true;
  const Plan p = plan_for(r, card(3));
  ASSERT_TRUE(p.best);
  const Need& n = p.best->run.need;
  const auto percent = [&](Bytes b) {
    return std::lround(100 * static_cast<double>(b.count) / static_cast<double>(p.device.capacity->bytes.count));
  };
  const std::string expected = std::to_string(percent(n.device.bytes)) + " % of 3.00 GiB expected, " +
                               std::to_string(percent(n.device.high)) + " % at the upper end";
  EXPECT_NE(shown(plan_document(p)).find(expected), std::string::npos) << expected << shown(plan_document(p));
}

TEST(Plans, ChangeNothingThatNeedNotBe) {
  const Plan p = plan_for(request_for(job_of("gpt2", {{"batch", 1}, {"optimizer_args", {{"fused", true}}}})), card(80));
  ASSERT_TRUE(p.best);
  EXPECT_EQ(p.best->run.changes, Patch()) << p.best->run.changes.text();
}

// A limit between nothing and everything checkpointed: there is slack for full checkpointing.
void expect_least_recomputation(const Job& job, double slack) {
  PlanRequest r = request_for(job);
  r.brief = true;
  r.constraints.keep = kAllButActivations;
  r.constraints.keep.insert({"batch", "loss", "output"});
  Evaluator evaluator(job, {card(80)});
  const auto need = [&](const nlohmann::json& level) { return evaluator.evaluate({{"checkpointing", level}}).needs[0]; };
  const Need none = need(false), full = need(true);
  const Bytes between{full.device.high.count +
                      static_cast<int64_t>(slack * static_cast<double>((none.device.high - full.device.high).count))};
  const Plan p = plan_for(r, card(static_cast<double>(between.count) / (1 << 30)));
  ASSERT_TRUE(p.best) << job.model;
  // Of every number of blocks, whole and selective, the fastest that fits; faster than all of them when any smaller number does.
  const Placement placement(block_costs(job, find_device("rtx-4090")));
  double least = full.time->seconds;
  for (size_t k = 1; k <= placement.blocks(); ++k)
    for (const bool selective : {false, true})
      if (const Need n = need(placement.level(k, selective)); n.device.high <= between) least = std::min(least, n.time->seconds);
  EXPECT_LE(p.best->run.need.time->seconds, least * (1 + 1e-9)) << job.model << " slack " << slack;
  if (slack >= 0.3) {
    EXPECT_LT(p.best->run.need.time->seconds, full.time->seconds) << job.model;
  }
  EXPECT_GT(p.best->run.need.time->seconds, none.time->seconds) << job.model;
  for (int k = 2; k <= 24; ++k) {
    const Need every = need({{"every", k}});
    if (every.device.high <= between) {
      EXPECT_LE(p.best->run.need.time->seconds, every.time->seconds) << job.model << " every " << k;
    }
  }
}

TEST(Plans, RecomputeNoMoreThanTheyMust) {
  expect_least_recomputation(job_of("gpt2-medium", {{"batch", 8}}), 0.5);
  expect_least_recomputation(job_of("qwen2.5-0.5b", {{"batch", 4}, {"seq", 1024}}), 0.3);
  expect_least_recomputation(job_of("bert-base-uncased", {{"batch", 16}, {"seq", 512}}), 0.7);
  expect_least_recomputation(job_of("vit-b16", {{"batch", 32}}), 0.5);
  for (const double slack : {0.15, 0.9}) {
    expect_least_recomputation(job_of("t5-small", {{"batch", 8}, {"seq", 512}}), slack);
    expect_least_recomputation(job_of("gpt2", {{"batch", 8}}), slack);
  }
}

// The seed's ladder calls a micro-batch of 4 lighter than sequences of 1536.
TEST(Plans, KnowThatLongerSequencesOfGsaAreLighterThanMoreOfThem) {
  const auto need = [](const nlohmann::json& settings) { return Fitting(job_of("gsa", settings)).need_on(card(44)).memory.device.bytes; };
  EXPECT_LT(need({{"batch", 2}, {"seq", 1536}, {"checkpointing", true}}), need({{"batch", 4}, {"seq", 1024}, {"checkpointing", true}}));
}

TEST(Plans, OfShardedJobsVaryWhatCanBeVaried) {
  PlanRequest r = request_for(job_of("qwen2.5-0.5b", {{"batch", 4}, {"seq", 1024}, {"fsdp", {{"world", 4}}}}));
  r.constraints.keep = {"adapter", "optimizer", "update", "offload", "precision"};
  const Plan p = plan_for(r, card(16));
  ASSERT_TRUE(p.best);
  EXPECT_TRUE(fits_again(p.best->run, p));
  EXPECT_EQ(p.best->run.job.parallel.fsdp->world, 4);
  EXPECT_EQ(p.best->run.global_batch, 16);
  const auto rank = std::find_if(p.sensitivity.begin(), p.sensitivity.end(), [](const Sensitivity& s) { return s.unit == "rank"; });
  ASSERT_NE(rank, p.sensitivity.end());
  EXPECT_LT(rank->bytes.count, 0);  // with more ranks each has less
  const Job megatron = job_of("llama-3.2-1b", {{"batch", 8},
                                               {"seq", 2048},
                                               {"precision", "bf16"},
                                               {"megatron", {{"world", 4}, {"tensor", 2}}},
                                               {"config", {{"num_hidden_layers", 4}}}});
  PlanRequest m = request_for(megatron);
  m.brief = true;
  const Plan small = plan_for(m, card(10));
  ASSERT_TRUE(small.best);
  EXPECT_EQ(small.best->run.global_batch, 16);
  EXPECT_LT(small.best->run.need.device.bytes, small.as_is.need.device.bytes);
}

TEST(Plans, KeepTheTotalBatchOrNameTheNearest) {
  PlanRequest r = request_for(job_of("gpt2", {{"batch", 4}, {"ddp", {{"world", 3}}}}));
  r.constraints.global_batch = 256;
  r.brief = true;
  const Plan p = plan_for(r, card(24));
  ASSERT_TRUE(p.best);
  EXPECT_EQ(p.best->run.global_batch % 3, 0);
  EXPECT_NEAR(static_cast<double>(p.best->run.global_batch), 256, 5);
  EXPECT_NE(shown(plan_document(p)).find("instead of 256"), std::string::npos);
}

// As in the seed's ladder: 3 x 21 x 4 for 256.
TEST(Plans, ComeNearestToTheTotalWithAMicroBatchThatStays) {
  PlanRequest r = request_for(job_of("gpt2", {{"batch", 3}, {"seq", 128}, {"ddp", {{"world", 4}}}, {"config", {{"n_layer", 2}}}}));
  r.constraints.global_batch = 256;
  r.constraints.keep = {"batch"};
  r.brief = true;
  const Plan p = plan_for(r, card(24));
  ASSERT_TRUE(p.best);
  EXPECT_EQ(p.best->run.job.batch, 3);
  EXPECT_EQ(p.best->run.job.accumulation, 21);
  EXPECT_NE(shown(plan_document(p)).find("The global batch is 252 (3 x 21 x 4 devices) instead of 256"), std::string::npos);
}

TEST(Plans, ClimbDownWithoutWhatIsKept) {
  PlanRequest r = request_for(job_of("gpt2", {{"batch", 4}, {"seq", 256}, {"config", {{"n_layer", 3}}}}));
  r.constraints.keep = {"precision", "adapter", "optimizer", "seq", "model"};
  const Plan p = plan_for(r, card(8));
  ASSERT_FALSE(p.down.empty());
  for (const Rung& rung : p.down)
    for (const char* setting : {"precision", "lora", "optimizer", "seq", "config"})
      EXPECT_FALSE(rung.run.changes.contains(setting)) << rung.name << ": " << rung.run.changes.text();
}

// A total that is kept: five samples are not two times three.
TEST(Plans, SplitOddBatchesExactly) {
  for (const Lever& l : levers_for(job_of("gpt2", {{"batch", 5}}))) {
    if (l.knob != "batch") continue;
    int64_t total = 1;
    for (const auto& [key, value] : l.settings) total *= value.get<int64_t>();
    EXPECT_EQ(total, 5) << l.name;
  }
}

TEST(Plans, SayWhatIsMissingAndWhatWouldFit) {
  PlanRequest r = request_for(job_of("gpt2-xl", {{"batch", 1}, {"precision", "fp32"}, {"seq", 1024}}));
  r.constraints.keep = {"precision", "optimizer", "adapter", "update"};
  const Plan p = plan_for(r, card(12));
  EXPECT_FALSE(p.best);
  ASSERT_TRUE(p.shortage);
  EXPECT_EQ(p.shortage->missing.count, (p.shortage->smallest.need.device.high - p.limit).count);
  ASSERT_FALSE(p.shortage->changes.empty());
  const std::string text = shown(plan_document(p));
  EXPECT_NE(text.find("No allowed change makes it fit"), std::string::npos);
  EXPECT_NE(text.find("without --keep adapter"), std::string::npos) << text;
  EXPECT_NE(text.find("a larger device"), std::string::npos) << text;
  const auto spread = std::find_if(p.shortage->changes.begin(), p.shortage->changes.end(),
                                   [](const GoalChange& c) { return c.flags.starts_with("--num-gpus"); });
  ASSERT_NE(spread, p.shortage->changes.end()) << text;
  EXPECT_TRUE(spread->run.job.parallel.fsdp);
  EXPECT_TRUE(fits_again(spread->run, p));
}

TEST(Plans, NameTheSmallestChangesThatWouldFit) {
  PlanRequest r = request_for(job_of("gpt2", {{"batch", 1}, {"precision", "fp32"}, {"seq", 1024}}));
  r.constraints.keep = {"precision", "optimizer", "adapter", "update", "checkpointing", "attention", "loss", "output", "offload"};
  r.leave_free = 0.2;
  r.brief = true;
  const Bytes alone = plan_for(r, card(80)).as_is.need.device.high;
  const TargetDevice d = card(1.1 * static_cast<double>(alone.count) / (1 << 30));  // enough for all, too little for 80 %
  const Plan p = plan_for(r, d);
  ASSERT_TRUE(p.shortage);
  const auto change = [&](const std::string& flags) -> const GoalChange* {
    for (const GoalChange& c : p.shortage->changes)
      if (c.flags.starts_with(flags)) return &c;
    return nullptr;
  };
  EXPECT_TRUE(change("without --leave-free"));
  ASSERT_TRUE(change("--seq"));
  const PlannedRun& shorter = change("--seq")->run;
  EXPECT_GT(shorter.job.seq, 512);
  EXPECT_TRUE(fits_again(shorter, p));
  Job longer = shorter.job;
  longer.seq += std::max<int64_t>(64, longer.seq / 16) + 64;
  EXPECT_GT(Fitting(longer).need_on(d).memory.device.high, p.limit);
}

TEST(Plans, ReachOtherGoals) {
  const Job job = job_of("qwen2.5-0.5b", {{"batch", 4}, {"seq", 1024}, {"config", {{"num_hidden_layers", 6}}}});
  const auto goal = [&](Objective o) {
    PlanRequest r = request_for(job);
    r.objective = o;
    r.brief = true;
    if (o == Objective::batch) r.job.origin.erase("batch");
    return plan_for(r, card(12));
  };
  const Plan fastest = goal(Objective::throughput), least = goal(Objective::memory), largest = goal(Objective::batch),
             longest = goal(Objective::sequence);
  ASSERT_TRUE(fastest.best && least.best && largest.best && longest.best);
  EXPECT_LT(least.best->run.need.device.bytes, fastest.best->run.need.device.bytes);
  EXPECT_GT(fastest.best->run.need.time->samples_per_second, least.best->run.need.time->samples_per_second);
  EXPECT_GT(largest.best->run.job.batch, 4);
  EXPECT_GT(longest.best->run.job.seq, 1024);
  for (const Plan* p : {&fastest, &least, &largest, &longest}) EXPECT_TRUE(fits_again(p->best->run, *p)) << to_string(p->objective);
}

TEST(Plans, ClimbDownStepByStep) {
  const Plan p = plan_for(request_for(job_of("gpt2", {{"batch", 16}})), card(16));
  ASSERT_GE(p.down.size(), 3u);
  int64_t before = p.best->run.need.device.bytes.count;
  for (const Rung& r : p.down) {
    EXPECT_LT(r.run.need.device.bytes.count, before * 0.981) << r.name;
    before = r.run.need.device.bytes.count;
  }
}

// What is said of the micro-batch holds with the micro-steps that the total then takes.
TEST(Plans, GiveBatchesOfTheTotalThatIsKept) {
  const PlanRequest r = request_for(job_of("gpt2", {{"batch", 16}, {"seq", 512}}));
  const Plan p = plan_for(r, card(6));
  ASSERT_TRUE(p.best && p.batch);
  ASSERT_GT(p.best->run.job.accumulation, 1);
  EXPECT_GE(p.batch->maximum, p.best->run.job.batch);
  EXPECT_LE(p.batch->recommended, p.batch->maximum);
  Job next = p.best->run.job;
  next.batch = p.batch->maximum + 1;
  next.accumulation = (16 + next.batch - 1) / next.batch;
  EXPECT_EQ(Fitting(next).need_on(p.device).verdict, Verdict::does_not_fit);
}

// A recipe that cannot be accumulated, because its gradients leave for the host, has its own batch at the least.
TEST(Plans, GiveBatchesOfWhatIsRunAtOnce) {
  PlanRequest r = request_for(job_of("gpt2", {{"batch", 8}, {"seq", 256}, {"config", {{"n_layer", 3}}}}));
  r.constraints.keep = {"precision", "optimizer", "adapter"};
  const Plan p = plan_for(r, card(1.3));
  ASSERT_TRUE(p.best && p.batch);
  ASSERT_EQ(p.best->run.job.accumulation, 1);
  EXPECT_TRUE(p.best->run.changes.contains("offload_optimizer")) << p.best->run.changes.text();
  EXPECT_GE(p.batch->maximum, 8);
}

TEST(Plans, GiveBatchesAndSensitivities) {
  const Plan p = plan_for(request_for(job_of("gpt2", {{"batch", 8}})), card(16));
  ASSERT_TRUE(p.batch);
  EXPECT_GT(p.batch->maximum, p.batch->recommended);
  EXPECT_GE(p.batch->recommended, 1);
  const auto at = [&](int64_t batch) {
    Job job = p.best->run.job;
    job.batch = batch;
    job.accumulation = (8 + batch - 1) / batch;
    return Fitting(job).need_on(p.device);
  };
  EXPECT_GE(at(p.batch->maximum).margin.count, 0);
  EXPECT_LT(at(p.batch->maximum + 1).margin.count, 0);
  ASSERT_GE(p.sensitivity.size(), 3u);
  EXPECT_EQ(p.sensitivity[0].unit, "sample");
  for (const Sensitivity& s : p.sensitivity) EXPECT_GT(s.bytes.count, 0) << s.unit;
}

class BrokenEvaluator : public Evaluator {
 public:
  using Evaluator::Evaluator;

 private:
  Fit need_on(Fitting&, const TargetDevice&) const override { throw std::out_of_range("a bug"); }
};

// Not "cannot be run": and nobody waits for a candidate that never comes.
TEST(Plans, FailLoudlyWhenAnExecutionHasABug) {
  BrokenEvaluator evaluator(job_of("gpt2", {{"seq", 64}}), {card(24)});
  EXPECT_THROW(supported_space(evaluator, {}, 0), std::out_of_range);
  EXPECT_THROW(quick_fixes(evaluator, 0), std::out_of_range);
  BrokenEvaluator fresh(job_of("gpt2", {{"seq", 64}}), {card(24)});
  const auto ask = [&] { fresh.evaluate({{"batch", 2}}); };
  std::future<void> other = std::async(std::launch::async, ask);
  EXPECT_THROW(ask(), std::out_of_range);
  EXPECT_THROW(other.get(), std::out_of_range);
}

TEST(Plans, RefuseConstraintsThatMakeNoSense) {
  PlanRequest r = request_for(job_of("gpt2", {}));
  r.constraints.keep = {"precisoin"};
  EXPECT_NE(error_of([&] { plan_for(r, card(24)); }).find("did you mean 'precision'"), std::string::npos);
  r.constraints.keep = r.constraints.allow = {"seq"};
  EXPECT_NE(error_of([&] { plan_for(r, card(24)); }).find("both kept and allowed"), std::string::npos);
  r.constraints.keep = {};
  r.constraints.allow = {"precision"};
  EXPECT_NE(error_of([&] { plan_for(r, card(24)); }).find("'precision' needs no --allow"), std::string::npos);
  EXPECT_NE(error_of([&] { parse_objective("speed"); }).find("throughput"), std::string::npos);
}

// What the run as it is would keep says nothing about what smaller micro-batches need.
TEST(Plans, OfLargeBatchesAreFoundInSmallPieces) {
  PlanRequest r = request_for(job_of("llama-3.1-8b", {{"batch", 512}, {"seq", 1024}, {"config", {{"num_hidden_layers", 2}}}}));
  r.brief = true;
  const Plan p = plan_for(r, card(24));
  ASSERT_TRUE(p.best);
  EXPECT_EQ(p.best->run.global_batch, 512);
  EXPECT_EQ(p.best->kind, LeverKind::same_result);
}

// What may stay as it is can only make the answer worse.
TEST(Plans, GainNothingByKeepingAKnob) {
  const Job job = job_of("gpt2", {{"batch", 8}, {"seq", 256}, {"config", {{"n_layer", 3}}}});
  for (const double gib : {1.3, 1.6, 2.0, 2.6}) {
    PlanRequest r = request_for(job);
    r.brief = true;
    const Plan freely = plan_for(r, card(gib));
    for (const char* knob : {"batch", "precision", "checkpointing", "loss", "output", "optimizer", "update", "offload", "allocator"}) {
      r.constraints.keep = {knob};
      const Plan kept = plan_for(r, card(gib));
      if (!kept.best) continue;
      ASSERT_TRUE(freely.best) << gib << " GiB, " << knob;
      EXPECT_LE(freely.best->kind, kept.best->kind) << gib << " GiB, " << knob << ": " << kept.best->run.changes.text();
      if (freely.best->kind != kept.best->kind) continue;
      EXPECT_LE(freely.best->run.need.time->seconds, kept.best->run.need.time->seconds * (1 + 1e-9)) << gib << " GiB, " << knob;
    }
  }
}

// A pool that is the host's, too, is not all a run's.
TEST(Plans, LeaveTheHostItsPartOfOnePool) {
  PlanRequest r = request_for(job_of("gpt2", {{"batch", 8}}));
  r.brief = true;
  TargetDevice pool = card(16, "gb10");
  const Plan p = plan_for(r, pool);
  EXPECT_GT(p.device.others.count, int64_t{4} << 30);
  EXPECT_EQ(p.limit, pool.capacity->low - p.device.others);
  ASSERT_TRUE(p.best);
  EXPECT_LE(p.best->run.need.device.high, p.limit);
}

// Both devices are asked about together: what is executed for the card must not reach the other's answer.
TEST(Plans, MoveNothingToTheHostWhereThatIsTheDevice) {
  PlanRequest r = request_for(job_of("gpt2", {{"batch", 4}, {"seq", 512}, {"lora", {{"r", 4}}}, {"config", {{"n_layer", 3}}}}));
  const std::vector<Plan> plans = make_plans(r, {card(1.5), card(1.5, "gb10")});
  const Plan &discrete = plans[0], &unified = plans[1];
  EXPECT_TRUE(std::any_of(discrete.fixes.begin(), discrete.fixes.end(), [](const QuickFix& f) { return moves_to_host(f.lever.settings); }));
  EXPECT_TRUE(discrete.left_out.empty());
  if (unified.best) {
    EXPECT_FALSE(moves_to_host(unified.best->run.changes));
  }
  if (unified.shortage) {
    EXPECT_FALSE(moves_to_host(unified.shortage->smallest.changes));
  }
  for (const Alternative& a : unified.alternatives) EXPECT_FALSE(moves_to_host(a.run.changes));
  for (const Alternative& a : unified.front) EXPECT_FALSE(moves_to_host(a.run.changes));
  for (const std::vector<Rung>* rungs : {&unified.up, &unified.down})
    for (const Rung& rung : *rungs) EXPECT_FALSE(moves_to_host(rung.run.changes)) << rung.name;
  for (const QuickFix& f : unified.fixes) EXPECT_FALSE(moves_to_host(f.lever.settings)) << f.lever.name;
  EXPECT_EQ(unified.left_out.size(), 4u);
  EXPECT_NE(shown(plan_document(unified)).find(kOnePool), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::plan_test
