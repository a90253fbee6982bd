// Unified memory: the steps add up, the batch that is found fits and the next does not, and the rule of thumb gives the worked examples
// of its own document.
#include <gtest/gtest.h>

#include "estimate/estimate.h"
#include "estimate/rule_of_thumb.h"
#include "estimate/unified_memory.h"
#include "model/resolve.h"

namespace plimsoll::unified_test {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

Job small_job() {
  Job job;
  job.model = "gpt2";
  job.seq = 256;
  job.origin["seq"] = "test";
  job.host.workers = 2;
  resolve_model(job);
  return job;
}

UnifiedPool pool_of(int64_t bytes) {
  UnifiedPool pool;
  pool.total = Bytes{bytes};
  pool.source = "test";
  return pool;
}

UnifiedEstimate unified(const Job& job, const UnifiedPool& pool) { return unified_memory(job, estimate(job).host_facts, pool); }

const UnifiedStep& step(const UnifiedEstimate& e, const std::string& name) {
  for (const UnifiedStep& s : e.steps)
    if (s.name == name) return s;
  throw std::runtime_error("no step " + name);
}

const UnifiedPoint* point(const UnifiedEstimate& e, int64_t batch) {
  for (const UnifiedPoint& p : e.simulated)
    if (p.batch == batch) return &p;
  return nullptr;
}

TEST(Unified, TheStepsAddUp) {
  const UnifiedEstimate e = unified(small_job(), pool_of(24 * kGiB));
  const auto bytes = [&](const char* name) { return step(e, name).bytes->count; };
  EXPECT_EQ(bytes("total") - bytes("reserved for the system"), bytes("available"));
  EXPECT_EQ(bytes("safety margin"), bytes("available") / 10);
  EXPECT_EQ(bytes("available") - bytes("safety margin") - bytes("device context") - bytes("host, fixed") - bytes("model, fixed"),
            bytes("left for samples"));
  EXPECT_EQ(*step(e, "maximum batch, divided").samples, bytes("left for samples") / bytes("per sample"));
  for (const UnifiedStep& s : e.steps) EXPECT_FALSE(s.source.empty()) << s.name;
}

TEST(Unified, TheBatchThatIsFoundFitsAndTheNextDoesNot) {
  const UnifiedEstimate e = unified(small_job(), pool_of(24 * kGiB));
  ASSERT_GT(e.max_batch, 1);
  EXPECT_EQ(*step(e, "maximum batch, simulated").samples, e.max_batch);
  const int64_t room = step(e, "available").bytes->count - step(e, "safety margin").bytes->count - step(e, "device context").bytes->count;
  const UnifiedPoint *last = point(e, e.max_batch), *next = point(e, e.max_batch + 1);
  ASSERT_TRUE(last && next);
  EXPECT_LE((last->device + last->host).count, room);
  EXPECT_GT((next->device + next->host).count, room);
}

TEST(Unified, PointsAreTheAllocatorsReservedPeak) {
  Job job = small_job();
  job.batch = 4;
  const UnifiedEstimate e = unified(job, pool_of(24 * kGiB));
  ASSERT_TRUE(point(e, 4));
  EXPECT_EQ(point(e, 4)->device, estimate(job).memory->reserved.bytes);
}

TEST(Unified, VerdictsFollowTheMargin) {
  Job job = small_job();
  UnifiedPool pool = pool_of(64 * kGiB);
  EXPECT_EQ(unified(job, pool).verdict, Verdict::fits);
  const Bytes need = unified(job, pool).need;
  pool.total = need;  // without any margin
  EXPECT_EQ(unified(job, pool).verdict, Verdict::tight);
  pool.total = need - Bytes{1};
  EXPECT_EQ(unified(job, pool).verdict, Verdict::does_not_fit);
  pool.total = need;
  pool.margin = 0;
  EXPECT_EQ(unified(job, pool).verdict, Verdict::fits);
}

TEST(Unified, APoolTooSmallForTheSystemHoldsNothing) {
  const UnifiedEstimate e = unified(small_job(), pool_of(kGiB));
  EXPECT_EQ(e.max_batch, 0);
  EXPECT_EQ(e.verdict, Verdict::does_not_fit);
}

TEST(Unified, ALimitOfTheDeviceHoldsInsideThePool) {
  UnifiedPool pool = pool_of(64 * kGiB);
  const int64_t free = unified(small_job(), pool).max_batch;
  pool.device_limit = Bytes{8 * kGiB};
  pool.device_limit_source = "test";
  const UnifiedEstimate e = unified(small_job(), pool);
  EXPECT_LT(e.max_batch, free);
  EXPECT_LE((point(e, e.max_batch)->device + *step(e, "device context").bytes).count, 8 * kGiB);
}

TEST(Unified, AStateDictThatIsHeldDoublesWhatLoadingTakes) {
  Job job = small_job();
  const HostFacts facts = estimate(job).host_facts;
  const auto peak = [&](LoadPlan plan) {
    job.host.load = plan;
    return unified_memory(job, facts, pool_of(64 * kGiB)).load_peak;
  };
  const ByteRange cpu = peak(LoadPlan::cpu), two = peak(LoadPlan::state_dict), mapped = peak(LoadPlan::mmap);
  EXPECT_EQ(two.bytes - cpu.bytes, facts.model());
  EXPECT_EQ(mapped.bytes, cpu.bytes);  // a model and its largest tensor, on one side or the other
  EXPECT_EQ((cpu.high - two.high).count, -facts.model().count);
  EXPECT_GE((cpu.high - cpu.bytes).count, facts.model().count);  // the file in the page cache
  // weights, states and EMA twice
  EXPECT_EQ(peak(LoadPlan::resume).bytes - mapped.bytes, facts.checkpoint() + facts.checkpoint() - facts.model() - facts.largest);
}

TEST(Unified, ManyProcessesMultiplyBothSides) {
  Job job = small_job();
  const UnifiedEstimate one = unified(job, pool_of(64 * kGiB));
  job.host.ranks_per_host = 2;
  const UnifiedEstimate two = unified(job, pool_of(64 * kGiB));
  EXPECT_EQ(point(two, 1)->device, point(one, 1)->device + point(one, 1)->device);
  EXPECT_EQ(point(two, 1)->host, point(one, 1)->host + point(one, 1)->host);
}

// "System: 120GB unified memory, Qwen Image model, 2048px resolution, 2 workers, EMA enabled"
TEST(RuleOfThumb, GivesTheFirstWorkedExampleOfItsDocument) {
  RuleOfThumb r;
  r.total = 120;
  r.weights = 28;
  r.optimizer = 56;
  r.ema = 1;
  r.workers = 2;
  r.resolution = 2048;
  const RuleAnswer a = rule_of_thumb(r);
  EXPECT_DOUBLE_EQ(a.workers, 16);
  EXPECT_DOUBLE_EQ(a.reserved, 109);
  EXPECT_NEAR(a.available, 9.9, 1e-9);
  EXPECT_DOUBLE_EQ(*a.per_sample, 16);
  EXPECT_EQ(*a.divided, 0);
  EXPECT_EQ(*a.batch, 1);
}

// "With quantization enabled": 14 + 28 + 1 + 0 + 8. The document stops at 3, above its own cap of 2 for this resolution.
TEST(RuleOfThumb, GivesTheSecondWorkedExampleOfItsDocument) {
  RuleOfThumb r;
  r.total = 120;
  r.weights = 14;
  r.optimizer = 28;
  r.ema = 1;
  r.resolution = 2048;
  const RuleAnswer a = rule_of_thumb(r);
  EXPECT_DOUBLE_EQ(a.reserved, 51);
  EXPECT_NEAR(a.available, 62.1, 1e-9);
  EXPECT_EQ(*a.divided, 3);
  EXPECT_EQ(*a.batch, 2);
}

TEST(RuleOfThumb, HasItsTablesOfSizesAndCaps) {
  struct Line {
    int64_t resolution;
    double per_sample;
    int64_t cap, largest;
  };
  for (const Line& l :
       {Line{512, 1.0, 16, 32}, Line{768, 2.25, 8, 16}, Line{1024, 4.0, 4, 8}, Line{1536, 9.0, 4, 8}, Line{2048, 16.0, 2, 4}}) {
    RuleOfThumb r;
    r.total = 1000;
    r.resolution = l.resolution;
    const RuleAnswer a = rule_of_thumb(r);
    EXPECT_DOUBLE_EQ(*a.per_sample, l.per_sample);
    EXPECT_EQ(*a.batch, l.cap);
    EXPECT_EQ(*a.largest, l.largest);
  }
}

TEST(RuleOfThumb, HasNoRuleForTokens) {
  const Job job = small_job();
  const RuleOfThumb r = rule_for(job, estimate(job).host_facts, Bytes{120 * kGiB});
  EXPECT_FALSE(rule_of_thumb(r).per_sample);
  EXPECT_DOUBLE_EQ(r.optimizer, 2 * r.weights);
}

}  // namespace
}  // namespace plimsoll::unified_test
