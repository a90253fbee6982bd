#include "plan/quick_what_if.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "estimate/estimate.h"
#include "plan/cheapest_change.h"
#include "plan/short_runs.h"
#include "util/parallel.h"

namespace plimsoll {

namespace {

int enough(const LeverEffect& e) {
  if (e.outcome != LeverOutcome::saves) return 3;
  return e.verdict == Verdict::fits ? 0 : e.verdict == Verdict::tight ? 1 : 2;
}

class Comparison {
 public:
  Comparison(Runs& runs, const Job& job, const TargetDevice& target, const OnProgress& tell)
      : runs_(runs), job_(job), target_(target), tell_(tell), now_(Fitting(runs, job).replay_on(target)) {}

  QuickWhatIf all(size_t first) {
    begin();
    const bool shorter = loops_over_tokens(job_);
    if (shorter) base_ = ShortRuns(job_).on(target_, {}, {});
    std::vector<Lever> levers = levers_for(job_, target_);
    ProgressCounter progress(tell_, "changes executed", levers.size());
    execute(std::move(levers), shorter, progress);
    while (!out_.unfinished && shorter && confirm(first, progress)) by_use(out_.all.effects);
    return std::move(out_);
  }

 private:
  void begin() {
    out_.all.device = now_.memory.device.bytes;
    out_.all.allocated = now_.memory.allocated.bytes;
    out_.all.peak_phase = estimate(runs_, job_, 0, target_.spec).peak_phase;
    out_.all.target = target_.name;
    out_.all.left_out = levers_left_out(job_, target_);
  }

  void execute(std::vector<Lever> levers, bool shorter, ProgressCounter& progress) {
    std::vector<LeverEffect> effects(levers.size());
    std::vector<char> done(levers.size()), by_short(levers.size());
    const auto execute_one = [&](size_t i) {
      std::optional<LeverEffect> quick = shorter ? by_short_run(levers[i]) : std::nullopt;
      by_short[i] = quick.has_value() ? 1 : 0;
      effects[i] = quick ? std::move(*quick) : in_full(levers[i]);
      done[i] = 1;
      progress.advance();
    };
    try {
      parallel_for(levers.size(), execute_one, progress);
    } catch (const Cancelled&) {
      out_.unfinished = true;
    }
    for (size_t i = 0; i < levers.size(); ++i) {
      if (done[i] == 0) continue;
      if (by_short[i] != 0) out_.by_short.push_back(levers[i].name);
      out_.all.effects.push_back(std::move(effects[i]));
    }
    by_use(out_.all.effects);
  }

  // Executions are looked up among those of the job as it is, and let go of when the numbers are known.
  LeverEffect in_full(const Lever& lever) const {
    Runs own(&runs_);
    return effect_on(own, job_, lever, now_);
  }

  // None where it cannot be run short, or cannot be run at all, which the whole execution says better.
  std::optional<LeverEffect> by_short_run(const Lever& lever) const {
    const Outcome<Job> patched = try_patched(job_, lever.settings, "what-if");
    if (!patched) return std::nullopt;
    Job changed = *patched;
    follow_training(changed, job_);
    if (!ShortRuns::worth(changed)) return std::nullopt;
    Need need;
    if (problem_in([&] { need = ShortRuns(changed).on(target_, {}, {}); })) return std::nullopt;
    LeverEffect e;
    e.lever = lever;
    e.saving = base_.device.bytes - need.device.bytes;  // both from short runs, so that what they have in common goes
    e.device = out_.all.device - e.saving;
    e.allocated = out_.all.allocated - (base_.allocated - need.allocated);
    const Bytes shift = e.device - need.device.bytes;
    e.verdict = verdict_of({e.device, need.device.low + shift, need.device.high + shift}, target_);
    const int64_t noticed = std::max<int64_t>(out_.all.device.count / 200, 1);  // as of a whole execution
    if (e.saving.count >= noticed) e.outcome = LeverOutcome::saves;
    if (e.saving.count <= -noticed) e.outcome = LeverOutcome::costs_memory;
    return e;
  }

  // Executes in full what stands first and was not yet. Whether there was any: the order may then be another.
  bool confirm(size_t first, ProgressCounter& progress) {
    std::vector<LeverEffect>& effects = out_.all.effects;
    bool any = false;
    for (size_t i = 0; i < std::min(first, effects.size()) && effects[i].outcome == LeverOutcome::saves; ++i) {
      const auto known = std::find(out_.by_short.begin(), out_.by_short.end(), effects[i].lever.name);
      if (known == out_.by_short.end()) continue;
      progress.expect(1);
      effects[i] = in_full(effects[i].lever);
      out_.by_short.erase(known);
      any = true;
      progress.advance();
      if (progress.cancelled()) {
        out_.unfinished = true;
        return false;
      }
    }
    return any;
  }

  Runs& runs_;
  const Job& job_;
  const TargetDevice& target_;
  const OnProgress& tell_;
  const Fit now_;
  Need base_;
  QuickWhatIf out_;
};

}  // namespace

void by_use(std::vector<LeverEffect>& effects) {
  std::vector<Lever> levers;
  for (const LeverEffect& e : effects) levers.push_back(e.lever);
  std::map<std::string, size_t> preference;
  for (const Lever& l : by_preference(std::move(levers))) preference.emplace(l.name, preference.size());
  const auto key = [&](const LeverEffect& e) {
    const int group = enough(e);
    const size_t preferred = group < 2 ? preference.at(e.lever.name) : 0;
    return std::tuple(group, preferred, group == 2 ? e.lever.kind : LeverKind::same_result, -e.saving.count);
  };
  std::stable_sort(effects.begin(), effects.end(), [&](const LeverEffect& a, const LeverEffect& b) { return key(a) < key(b); });
}

QuickWhatIf quick_what_if(Runs& runs, const Job& job, const std::optional<TargetDevice>& target, size_t first, const OnProgress& progress) {
  if (target) return Comparison(runs, job, *target, progress).all(first);
  QuickWhatIf out;
  try {
    out.all = what_if(runs, job, target, progress);
    by_use(out.all.effects);
  } catch (const Cancelled&) {
    out.unfinished = true;
  }
  return out;
}

}  // namespace plimsoll
