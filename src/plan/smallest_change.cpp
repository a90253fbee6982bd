#include "plan/smallest_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "job/distribution.h"
#include "plan/ladder.h"
#include "plan/lower_bound.h"
#include "plan/placement.h"
#include "plan/short_runs.h"
#include "plan/supported_space.h"
#include "plan/why_nothing_fits.h"

namespace plimsoll {

namespace {

constexpr size_t kMostOfASize = 256;  // sets of changes of one size that are executed; above, the planner's search takes over

using Set = std::vector<const Lever*>;  // of different knobs

Patch patch_of(const Set& set) {
  Patch out;
  for (const Lever* l : set) out = merged(out, l->settings);
  return out;
}

LeverKind kind_of(const Set& set) {
  LeverKind most = LeverKind::same_result;
  for (const Lever* l : set) most = std::max(most, l->kind);
  return most;
}

double seconds_of(const PlannedRun& r) { return r.need.time ? r.need.time->seconds / static_cast<double>(r.global_batch) : std::nan(""); }

class ChangeSearch {
 public:
  ChangeSearch(const ChangeRequest& request, Evaluator& evaluator)
      : request_(request), evaluator_(evaluator), space_(supported_space(evaluator, request.constraints, 0)) {
    out_.limit = Bytes{static_cast<int64_t>(static_cast<double>(room_on(request.device).count) * (1 - request.leave_free))};
  }

  SmallestChange make() {
    if (evaluator_.extrapolates()) evaluator_.confirm({Patch()});
    const Candidate& now = evaluator_.evaluate(Patch());
    if (now.needs.empty()) throw Error("[fix] as it is, it cannot be run: " + now.impossible, "correct that first");
    out_.as_is = planned(now, 0);
    out_.fits_as_it_is = now.needs[0].verdict == Verdict::fits;
    if (now.needs[0].verdict == Verdict::unknown)
      throw Error(fmt::format("[fix] whether it fits {} is not known: {}", request_.device.name, now.needs[0].unknown),
                  "name another device");
    parameters_ = whole_parameters(request_.job, now.parameters);
    if (!out_.fits_as_it_is) find();
    out_.executed = evaluator_.executed();
    return std::move(out_);
  }

 private:
  void find() {
    collect_levers();
    for (const LeverKind kind : {LeverKind::same_result, LeverKind::different_numerics, LeverKind::different_training})
      for (const bool all : {false, true}) {
        if (all && request_.last.empty()) continue;
        if (found(kind, all)) return;
      }
    shortage();
  }

  // Those that may be turned, by knob; micro-batches, the largest first.
  void collect_levers() {
    const std::vector<Lever> all = levers_for(request_.job, request_.device);
    std::vector<Patch> alone;
    for (const Lever& l : all)
      if (l.searched && l.knob != "batch" && space_.turns(l)) alone.push_back(l.settings);
    evaluator_.prepare(alone);
    for (const Lever& l : all)
      if (l.searched && l.knob != "batch" && space_.turns(l) && !evaluator_.evaluate(l.settings).needs.empty()) levers_.push_back(l);
    const Job& job = request_.job;
    const bool jax = job.program.framework == Framework::jax;
    if (space_.batch)
      for (const Split& s : splits_of(space_, job)) {
        if (s.batch >= job.batch) continue;
        Patch changes{{"batch", s.batch}};
        if (s.accumulation != job.accumulation) changes.set("accumulation", s.accumulation);
        batches_.push_back({"batch", fmt::format("micro-batch {}{}", s.batch, jax ? "" : fmt::format(" x {}", s.accumulation)), changes,
                            jax ? LeverKind::different_training : LeverKind::same_result,
                            jax ? "the global batch is smaller" : "little while it still fills the device"});
      }
  }

  bool last(const Lever& l) const { return request_.last.contains(l.name); }

  // Of a knob, the levers up to that kind; the batch is one of them, which find_batch() settles.
  std::vector<std::vector<const Lever*>> knobs_up_to(LeverKind kind, bool all) const {
    std::vector<std::vector<const Lever*>> out;
    for (const Lever& l : levers_) {
      if (l.kind > kind || (!all && last(l))) continue;
      const auto same = std::find_if(out.begin(), out.end(), [&](const auto& k) { return k[0]->knob == l.knob; });
      if (same == out.end())
        out.push_back({&l});
      else
        same->push_back(&l);
    }
    if (!batches_.empty() && batches_[0].kind <= kind) out.push_back({&batches_[0]});  // the smallest
    return out;
  }

  static void add_sets(const std::vector<std::vector<const Lever*>>& knobs, size_t from, size_t size, Set& set, std::vector<Set>& out) {
    if (size == 0) return out.push_back(set);
    for (size_t k = from; k + size <= knobs.size(); ++k)
      for (const Lever* l : knobs[k]) {
        set.push_back(l);
        add_sets(knobs, k + 1, size - 1, set, out);
        set.pop_back();
      }
  }

  bool too_large(const Patch& changes) const {
    const Outcome<Job> job = try_patched(request_.job, changes, "fix");
    return !job || lower_bound(*job, parameters_) > out_.limit;
  }

  bool fits(const Patch& changes) {
    const Candidate& c = evaluator_.evaluate(changes);
    return !c.needs.empty() && plimsoll::fits(c.needs[0], out_.limit);
  }

  // The same with the largest micro-batch that fits.
  void widen_batch(Set& set) {
    const auto it = std::find(set.begin(), set.end(), batches_.empty() ? nullptr : &batches_[0]);
    if (it == set.end()) return;
    size_t good = 0, bad = batches_.size();
    while (bad - good > 1) {
      const size_t middle = (good + bad) / 2;
      *it = &batches_[middle];
      (fits(patch_of(set)) ? good : bad) = middle;
    }
    *it = &batches_[good];
  }

  // The sets of that size which fit, the least slow first.
  std::vector<Set> fitting(const std::vector<Set>& sets) {
    std::vector<Patch> all;
    for (const Set& s : sets) all.push_back(patch_of(s));
    evaluator_.prepare(all);
    std::vector<Set> out;
    for (Set s : sets) {
      if (!fits(patch_of(s))) continue;
      widen_batch(s);
      out.push_back(std::move(s));
    }
    const auto cost = [&](const Set& s) {
      const double seconds = seconds_per_sample(evaluator_.evaluate(patch_of(s)), 0);
      const auto later = std::count_if(s.begin(), s.end(), [&](const Lever* l) { return last(*l); });
      return std::pair(later, std::isfinite(seconds) ? seconds : 0);
    };
    std::stable_sort(out.begin(), out.end(), [&](const Set& a, const Set& b) { return cost(a) < cost(b); });
    return out;
  }

  bool found(LeverKind kind, bool all) {
    const std::vector<std::vector<const Lever*>> knobs = knobs_up_to(kind, all);
    for (size_t size = 1; size <= knobs.size(); ++size) {
      std::vector<Set> sets;
      Set set;
      add_sets(knobs, 0, size, set, sets);
      std::erase_if(sets, [&](const Set& s) {
        const bool before = kind_of(s) < kind || (all && std::none_of(s.begin(), s.end(), [&](const Lever* l) { return last(*l); }));
        return before || too_large(patch_of(s));
      });
      if (sets.size() > kMostOfASize) return found_by_search(kind, all);
      for (const Set& s : fitting(sets))
        if (accepted(s)) return true;
    }
    return false;
  }

  // The planner's recipe for speed, without what is not needed for it to fit.
  bool found_by_search(LeverKind kind, bool all) {
    out_.every_smaller_one = false;
    Space space = space_;
    if (!all) std::erase_if(space.costless, [&](const Patch& p) { return is_last(p); });
    space.free = {};
    for (const Patch& p : space.costless) space.free = merged(space.free, p);
    const Placement placement = placement_of_blocks();
    Search search(evaluator_, space, placement, 0, out_.limit, Objective::memory);
    const Candidate* c = search.best(kind);
    if (c == nullptr) return false;
    Set set;
    for (const Lever& l : levers_) {  // of a knob the one that says most: LoRA is a part of QLoRA
      if (!c->changes.includes(l.settings)) continue;
      if (!set.empty() && set.back()->knob == l.knob && set.back()->settings.size() < l.settings.size()) set.pop_back();
      if (set.empty() || set.back()->knob != l.knob) set.push_back(&l);
    }
    for (const Lever& l : batches_)
      if (c->changes.includes(l.settings)) set.push_back(&l);
    if (!fits(patch_of(set))) return false;
    while (take_one_back(set)) continue;
    widen_batch(set);
    return accepted(set);
  }

  // The change without which it still fits, and is fastest.
  bool take_one_back(Set& set) {
    std::optional<Set> best;
    for (size_t i = 0; i < set.size(); ++i) {
      Set without = set;
      without.erase(without.begin() + static_cast<ptrdiff_t>(i));
      const auto seconds = [&](const Set& s) { return seconds_per_sample(evaluator_.evaluate(patch_of(s)), 0); };
      if (fits(patch_of(without)) && (!best || seconds(without) < seconds(*best))) best = std::move(without);
    }
    if (best) set = std::move(*best);
    return best.has_value();
  }

  Placement placement_of_blocks() const {
    Job job = request_.job;
    if (job.program.framework != Framework::pytorch) return Placement({});
    if (!is_distributed(job)) job.steps = job.accumulation = 1;
    return Placement(block_costs(job, request_.device.spec), job.checkpointing.reentrant);
  }

  bool is_last(const Patch& settings) const {
    return std::any_of(levers_.begin(), levers_.end(), [&](const Lever& l) { return last(l) && l.settings == settings; });
  }

  bool accepted(Set set) {
    const Patch changes = patch_of(set);
    if (evaluator_.extrapolates()) evaluator_.confirm({changes});
    if (!fits(changes)) return false;
    PlannedRun run = planned(evaluator_.evaluate(changes), 0);
    if (request_.accept && !request_.accept(run)) return false;
    out_.kind = kind_of(set);
    out_.run = std::move(run);
    steps(std::move(set));
    return true;
  }

  // What disturbs least first, each on top of those before it.
  void steps(Set set) {
    std::stable_sort(set.begin(), set.end(), [](const Lever* a, const Lever* b) { return a->kind < b->kind; });
    PlannedRun before = out_.as_is;
    Patch changes;
    for (const Lever* l : set) {
      changes = merged(changes, l->settings);
      const Candidate& c = evaluator_.evaluate(changes);
      ChangeStep step{*l, planned(c, 0), std::nullopt, std::nan("")};
      if (!c.needs.empty()) {
        step.saving = before.need.device.bytes - step.run.need.device.bytes;
        step.slower = seconds_of(step.run) / seconds_of(before) - 1;
        before = step.run;
      }
      out_.steps.push_back(std::move(step));
    }
  }

  void shortage() {
    const Candidate* smallest = nullptr;
    Patch corner = batches_.empty() ? Patch() : batches_[0].settings;
    for (const Lever& l : levers_)
      if (l.knob == "checkpointing" || l.knob == "loss") corner = merged(corner, l.settings);
    evaluator_.evaluate(corner);
    for (const Candidate* c : evaluator_.all())
      if (!c->needs.empty() && (!smallest || c->needs[0].device.high < smallest->needs[0].device.high)) smallest = c;
    PlanRequest request;
    request.job = request_.job;
    request.constraints = request_.constraints;
    request.leave_free = request_.leave_free;
    Plan plan;
    plan.device = request_.device;
    plan.limit = out_.limit;
    plan.as_is = out_.as_is;
    out_.shortage = why_nothing_fits(request, evaluator_, placement_of_blocks(), plan, *smallest, 0);
  }

  const ChangeRequest& request_;
  Evaluator& evaluator_;
  Space space_;
  int64_t parameters_ = 0;
  std::vector<Lever> levers_;
  std::vector<Lever> batches_;  // the smallest first
  SmallestChange out_;
};

}  // namespace

SmallestChange smallest_change(const ChangeRequest& request) {
  if (!request.device.capacity)
    throw Error(fmt::format("[fix] how much memory {} has is not established", request.device.name), "name a size: --gpu 24GiB",
                ExitCode::usage);
  ChangeRequest kept = request;
  kept.constraints.placements = false;
  if (!kept.constraints.global_batch)
    kept.constraints.global_batch = checked_mul(checked_mul(kept.job.batch, kept.job.accumulation), replica_count(kept.job));
  Evaluator evaluator(kept.job, {kept.device}, {}, {}, loops_over_tokens(kept.job), kept.progress, kept.known);
  return ChangeSearch(kept, evaluator).make();
}

}  // namespace plimsoll
