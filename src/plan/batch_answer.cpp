#include "plan/batch_answer.h"

#include <algorithm>
#include <future>

#include "job/distribution.h"
#include "plan/short_runs.h"

namespace plimsoll {

namespace {

constexpr double kRecommendedShare = 0.9;
constexpr int64_t kLargest = 1 << 20;

class Batches {
 public:
  Batches(Evaluator& evaluator, const Space& space, const Patch& from, size_t device)
      : evaluator_(evaluator), space_(space), from_(from), device_(device), job_(patched(evaluator.job(), from, "plan")) {
    const Candidate& base = evaluator.evaluate(from);
    if (!base.thought.empty())
      found_to_thought_ =
          static_cast<double>(base.needs[device].device.high.count) / static_cast<double>(base.thought[device].device.high.count);
  }

  // Straight lines through two batches lead to the edge, and every answer was executed. Where one sample and its accumulation do not fit,
  // or cannot be, the recipe's own batch may: the whole at once.
  int64_t largest(Bytes capacity, const std::function<bool(const Need&)>& fits) {
    const auto good = [&](int64_t b) {
      const std::optional<Need> n = at(b);
      return n && fits(*n);
    };
    const int64_t least = good(1) ? 1 : job_.batch;
    if (!good(least)) return 0;
    const std::optional<Need> first = at(least), next = at(least + 1);
    if (!next) return least;
    const int64_t slope = std::max<int64_t>(1, (next->device.bytes - first->device.bytes).count);
    int64_t low = least, high = 0;
    int64_t guess = std::clamp<int64_t>(least + (capacity - first->device.high).count / slope, least + 1, kLargest + least);
    for (int64_t reach = std::max<int64_t>(1, guess / 32); guess <= 2 * kLargest && (high == 0 || high - low > 1); reach *= 2) {
      if (good(guess)) {
        low = guess;
        guess = high ? (low + high) / 2 : low + reach;
      } else {
        high = guess;
        guess = high - reach > low && low == least ? high - reach : (low + high) / 2;
      }
    }
    return low;
  }

 private:
  // Where the global batch is free, as many micro-steps as the recipe has.
  int64_t accumulation_for(int64_t batch) const {
    if (job_.program.framework == Framework::jax || !space_.global) return job_.accumulation;
    const int64_t samples = checked_mul(batch, replica_count(job_));
    return std::max<int64_t>(1, (*space_.global + samples - 1) / samples);
  }

  // What was only extrapolated is taken to be off as the recipe itself was found to be.
  std::optional<Need> at(int64_t b) {
    Patch changes = from_.without({"batch", "accumulation"});
    const Job& now = evaluator_.job();
    if (b != now.batch) changes.set("batch", b);
    if (const int64_t n = accumulation_for(b); n != now.accumulation) changes.set("accumulation", n);
    const Candidate& c = evaluator_.evaluate(changes);
    if (c.needs.empty()) return std::nullopt;
    Need need = c.needs[device_];
    if (!c.extrapolated) return need;
    for (Bytes* end : {&need.device.bytes, &need.device.low, &need.device.high})
      *end = Bytes{static_cast<int64_t>(found_to_thought_ * static_cast<double>(end->count))};
    need.verdict = verdict_of(need.device, evaluator_.devices()[device_]);
    return need;
  }

  Evaluator& evaluator_;
  const Space& space_;
  const Patch& from_;
  size_t device_;
  Job job_;
  double found_to_thought_ = 1;
};

}  // namespace

std::optional<BatchAnswer> batch_answer(Evaluator& evaluator, const Space& space, const Plan& plan, const Patch& from, size_t device) {
  if (!plan.device.capacity || evaluator.evaluate(from).needs.empty() || !space.batch) return std::nullopt;
  const Bytes capacity = room_on(plan.device);
  Batches batches(evaluator, space, from, device);
  const Bytes recommended{static_cast<int64_t>(kRecommendedShare * static_cast<double>(capacity.count))};
  auto careful = std::async(std::launch::async, [&] {
    return batches.largest(capacity, [&](const Need& n) { return fits(n, std::min(plan.limit, recommended)); });
  });
  BatchAnswer a;
  a.maximum = batches.largest(capacity, [](const Need& n) { return n.verdict == Verdict::fits || n.verdict == Verdict::tight; });
  a.recommended = careful.get();
  const int64_t global = plan.best ? plan.best->run.global_batch : plan.as_is.global_batch;
  if (global <= 2) a.note = "an optimizer step of 1 or 2 samples has noisy gradients; 4 or more are steadier: raise accumulation";
  return a;
}

}  // namespace plimsoll
