// The smallest change: no smaller set of levers fits, by brute force.
#include "plan/smallest_change.h"

#include <gtest/gtest.h>

#include <set>

#include "hardware/lookup.h"
#include "plan/supported_space.h"
#include "support.h"

namespace plimsoll::smallest_change_test {
namespace {

TargetDevice card(double gib) {
  TargetDevice d = target_device(find_device("rtx-4090"));
  const Bytes size{static_cast<int64_t>(gib * 1024 * 1024 * 1024)};
  d.capacity = Capacity{size, size, size, "as given"};
  return d;
}

ChangeRequest request_for(const Job& job, double gib) {
  ChangeRequest r;
  r.job = job;
  r.device = card(gib);
  return r;
}

double gib(Bytes b) { return static_cast<double>(b.count) / (1 << 30); }

Job small(nlohmann::json more = nlohmann::json::object()) {
  nlohmann::json settings{{"batch", 8}, {"seq", 256}, {"precision", "fp32"}, {"config", {{"n_layer", 3}}}};
  settings.update(more);
  return job_of("gpt2", settings);
}

TEST(SmallestChange, IsNoneWhereItFits) {
  const SmallestChange c = smallest_change(request_for(small(), 24));
  EXPECT_TRUE(c.fits_as_it_is);
  EXPECT_FALSE(c.run);
  EXPECT_TRUE(c.steps.empty());
}

// Of one change alone: every lever and every micro-batch, executed here one by one.
TEST(SmallestChange, OfOneIsTheLeastSlowThatFits) {
  const Job job = small();
  Evaluator evaluator(job, {card(80)});
  const double whole = gib(evaluator.evaluate(Patch()).needs[0].device.high);
  for (const double part : {0.95, 0.85, 0.75}) {
    const ChangeRequest r = request_for(job, part * whole);
    const SmallestChange c = smallest_change(r);
    ASSERT_TRUE(c.run) << part;
    EXPECT_LE(c.run->need.device.high, c.limit);
    EXPECT_EQ(c.run->global_batch, 8);
    if (c.steps.size() != 1) continue;
    std::vector<Patch> all;
    for (const Lever& l : levers_for(job))
      if (l.searched && l.knob != "batch" && l.knob != "seq" && l.knob != "model" && l.kind == LeverKind::same_result)
        all.push_back(l.settings);
    for (const int64_t b : {1, 2, 4}) all.push_back({{"batch", b}, {"accumulation", 8 / b}});
    for (const Patch& p : all) {
      const Candidate& other = evaluator.evaluate(p);
      if (other.needs.empty() || other.needs[0].device.high > c.limit || other.needs[0].device.high.count == 0) continue;
      const Candidate at = [&] {
        Evaluator here(job, {r.device});
        return here.evaluate(p);
      }();
      if (!fits(at.needs[0], c.limit)) continue;
      EXPECT_LE(c.run->need.time->seconds, at.needs[0].time->seconds * (1 + 1e-9)) << part << " " << p.text();
    }
  }
}

// Below what one change reaches, two; each step is on top of the one before, and the last is the answer.
TEST(SmallestChange, TakesAsManyAsItMust) {
  const Job job = small();
  const double whole = gib(smallest_change(request_for(job, 24)).as_is.need.device.high);
  size_t before = 0;
  for (const double part : {0.9, 0.6, 0.45}) {
    ChangeRequest r = request_for(job, part * whole);
    r.constraints.keep = {"precision", "optimizer", "adapter", "quantization", "ema"};
    const SmallestChange c = smallest_change(r);
    if (!c.run) continue;
    EXPECT_GE(c.steps.size(), before) << part;
    before = c.steps.size();
    EXPECT_EQ(c.steps.back().run.need.device.bytes, c.run->need.device.bytes);
    std::set<std::string> knobs;
    for (const ChangeStep& s : c.steps) EXPECT_TRUE(knobs.insert(s.lever.knob).second) << s.lever.name;
    // None of them can be left out.
    for (size_t i = 0; i < c.steps.size(); ++i) {
      Patch without;
      for (size_t k = 0; k < c.steps.size(); ++k)
        if (k != i) without = merged(without, c.steps[k].lever.settings);
      Evaluator evaluator(job, {r.device});
      const Candidate& other = evaluator.evaluate(without);
      EXPECT_TRUE(other.needs.empty() || !fits(other.needs[0], c.limit)) << part << " without " << c.steps[i].lever.name;
    }
  }
  EXPECT_GE(before, 2u);
}

// What is refused is not the answer, and the next one is asked about.
TEST(SmallestChange, AsksUntilItIsAccepted) {
  const Job job = small();
  const double whole = gib(smallest_change(request_for(job, 24)).as_is.need.device.high);
  ChangeRequest r = request_for(job, 0.8 * whole);
  const SmallestChange first = smallest_change(r);
  ASSERT_TRUE(first.run);
  std::vector<Patch> asked;
  r.accept = [&](const PlannedRun& run) {
    asked.push_back(run.changes);
    return asked.size() == 2;
  };
  const SmallestChange second = smallest_change(r);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0], first.run->changes);
  ASSERT_TRUE(second.run);
  EXPECT_EQ(second.run->changes, asked[1]);
  EXPECT_NE(asked[0], asked[1]);
}

TEST(SmallestChange, NamesWhatWouldFitWhereNothingDoes) {
  ChangeRequest r = request_for(small(), 0.5);
  r.constraints.keep = {"precision", "optimizer", "adapter", "update", "offload"};
  const SmallestChange c = smallest_change(r);
  EXPECT_FALSE(c.run);
  ASSERT_TRUE(c.shortage);
  EXPECT_GT(c.shortage->missing.count, 0);
  EXPECT_FALSE(c.shortage->changes.empty());
}

}  // namespace
}  // namespace plimsoll::smallest_change_test
