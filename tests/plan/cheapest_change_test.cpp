// The change that makes a run fit: the least disturbing first, and no more executions than it takes.
#include "plan/cheapest_change.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support.h"

namespace plimsoll::cheapest_change_test {
namespace {

using Json = nlohmann::json;

TargetDevice device_of(double gib) {
  TargetDevice d;
  d.spec.vendor = "NVIDIA";
  d.name = d.spec.name = "made up";
  const Bytes size{static_cast<int64_t>(gib * (1 << 30))};
  d.capacity = Capacity{size, size, size, "as given"};
  return d;
}

struct Asked {
  Fit now;
  CheapestChange change;
  size_t executions = 0;
};

Asked ask(const char* model, const Json& settings, double gib) {
  const Job job = job_of(model, settings);
  Runs runs;
  Asked out;
  out.now = Fitting(runs, job).replay_on(device_of(gib));
  out.change = cheapest_change(runs, job, out.now, runs.execute(job, target_of(job, out.now.device.spec))->simulation.parameters);
  out.executions = runs.executed();
  return out;
}

TEST(CheapestChange, KeepsTheResultWhereItCan) {
  const Asked a = ask("gpt2", {{"batch", 8}, {"seq", 512}}, 5);
  ASSERT_EQ(a.now.verdict, Verdict::does_not_fit);
  ASSERT_TRUE(a.change.fits);
  EXPECT_EQ(a.change.fits->lever.kind, LeverKind::same_result);
  EXPECT_EQ(a.change.fits->verdict, Verdict::fits);
  EXPECT_GT(a.change.fits->saving.count, 0);
}

TEST(CheapestChange, FitsWhenItIsMade) {
  const Json settings{{"batch", 8}, {"seq", 512}};
  const Asked a = ask("gpt2", settings, 5);
  ASSERT_TRUE(a.change.fits);
  const Job changed = patched(job_of("gpt2", settings), a.change.fits->lever.settings, "test");
  const Fit fit = Fitting(changed).replay_on(device_of(5));
  EXPECT_EQ(fit.verdict, Verdict::fits);
  EXPECT_EQ(fit.memory.device.bytes, a.change.fits->device);
}

TEST(CheapestChange, IsNeverOneThatIsSetAlready) {
  const Asked first = ask("gpt2", {{"batch", 8}, {"seq", 512}}, 5);
  ASSERT_TRUE(first.change.fits);
  Json settings{{"batch", 8}, {"seq", 512}};
  settings.update(first.change.fits->lever.settings.json());
  const Job job = job_of("gpt2", settings);
  for (const Lever& l : levers_for(job)) EXPECT_NE(l.settings, first.change.fits->lever.settings) << l.name;
}

TEST(CheapestChange, StopsAtTheFirstThatFits) {
  const Asked a = ask("gpt2", {{"batch", 8}, {"seq", 512}}, 5);
  EXPECT_EQ(a.executions, 1 + a.change.executed);
  EXPECT_LT(a.change.executed, levers_for(job_of("gpt2", {{"batch", 8}, {"seq", 512}})).size());
}

TEST(CheapestChange, IsNoneWhereNothingAloneIsEnough) {
  const Asked a = ask("gpt2", {{"batch", 8}, {"seq", 512}}, 0.45);
  EXPECT_FALSE(a.change.fits);
  EXPECT_FALSE(a.change.tight);
  EXPECT_GT(a.change.left_out, 0u) << "weights and states alone are more than there is: no need to execute that";
}

TEST(CheapestChange, TriesTheSameResultFirstAndWhatIsFreeBeforeWhatCosts) {
  const std::vector<Lever> levers = by_preference(levers_for(job_of("gpt2", {{"batch", 8}, {"seq", 512}})));
  ASSERT_FALSE(levers.empty());
  EXPECT_TRUE(levers[0].free);
  for (size_t i = 1; i < levers.size(); ++i) EXPECT_LE(levers[i - 1].kind, levers[i].kind) << levers[i].name;
  const auto place = [&](const char* name) {
    return std::find_if(levers.begin(), levers.end(), [&](const Lever& l) { return l.name == name; }) - levers.begin();
  };
  EXPECT_LT(place("checkpoint every 2nd block"), place("checkpoint every block"));
  EXPECT_LT(place("half the batch, twice the accumulation"), place("batch 1, the rest by accumulation"));
  EXPECT_LT(place("checkpoint every block"),
            place("bf16 autocast") == static_cast<ptrdiff_t>(levers.size()) ? place("everything in bf16") : place("bf16 autocast"));
}

}  // namespace
}  // namespace plimsoll::cheapest_change_test
