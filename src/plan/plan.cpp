#include "plan/plan.h"

#include <algorithm>
#include <future>

#include "estimate/host_memory.h"
#include "job/distribution.h"
#include "plan/batch_answer.h"
#include "plan/ladder.h"
#include "plan/quick_fixes.h"
#include "plan/sensitivity.h"
#include "plan/short_runs.h"
#include "plan/supported_space.h"
#include "plan/why_nothing_fits.h"

namespace plimsoll {

namespace {

constexpr LeverKind kKinds[]{LeverKind::same_result, LeverKind::different_numerics, LeverKind::different_training};
constexpr double kWorthAChange = 0.97;     // of the time that the plan takes
constexpr double kNextToNoTime = 1.02;     // what room on the device may cost
constexpr size_t kManyEvents = 2'000'000;  // seconds for every candidate
constexpr int kAttempts = 4;               // searches until what was extrapolated holds when it is executed

Bytes share(Bytes b, double part) { return Bytes{static_cast<int64_t>(static_cast<double>(b.count) * part)}; }

class Planner {
 public:
  Planner(const PlanRequest& request, Evaluator& evaluator, const Space& space, const Placement& placement, size_t device)
      : request_(request), evaluator_(evaluator), space_(space), placement_(placement), device_(device) {
    plan_.device = evaluator.devices()[device];
    plan_.objective = request.objective;
    plan_.global = space.global;
    plan_.calibration = request.calibration.source;
    if (plan_.device.capacity) plan_.limit = share(room_on(plan_.device), 1 - request.leave_free);
    searched_limit_ = plan_.limit;
    if (evaluator.extrapolates()) plan_.extrapolated_from = {ShortRuns::kFew, ShortRuns::kMore};
  }

  Plan make() {
    const Candidate& now = evaluator_.evaluate(Patch());
    try {
      return whole(now);
    } catch (const Cancelled&) {
      if (!request_.keep_best) throw;
      return so_far(now);
    }
  }

 private:
  Plan whole(const Candidate& now) {
    plan_.as_is = planned(now, device_);
    plan_.as_is_impossible = now.impossible;
    plan_.peak_phase = now.peak_phase;
    plan_.left_out = levers_left_out(request_.job, plan_.device);
    plan_.shortened = !request_.brief && !request_.full && !evaluator_.extrapolates() && now.events > kManyEvents;
    const bool everything = !request_.brief && !plan_.shortened;
    // What is executed is the same in any order, so that what is independent runs side by side. While short runs are confirmed nobody may
    // ask.
    std::future<std::vector<QuickFix>> fixing;
    if (everything)
      fixing = std::async(evaluator_.extrapolates() ? std::launch::deferred : std::launch::async,
                          [this] { return quick_fixes(evaluator_, device_, &space_); });
    find();
    if (!plan_.best) shortage();
    plan_.as_is = planned(now, device_);
    if (everything) {
      const Patch from = plan_.best ? plan_.best->run.changes : Patch();
      auto faster = std::async(std::launch::async, [this] { alternatives(); });
      auto beyond = std::async(std::launch::async, [this] { beyond_words(); });
      auto down = std::async(std::launch::async, [&] { return ladder_down(evaluator_, space_, plan_, from, device_); });
      plan_.up = ladder_up(evaluator_, space_, placement_, plan_, device_);
      plan_.batch = batch_answer(evaluator_, space_, plan_, from, device_);
      plan_.sensitivity = sensitivities(evaluator_, from, placement_.blocks(), device_);
      faster.get();
      beyond.get();
      plan_.down = down.get();
      plan_.fixes = fixing.get();
      front();
    }
    return std::move(plan_);
  }

  // The least disturbing of what was executed and fits, and the best of those.
  Plan so_far(const Candidate& now) {
    plan_.unfinished = true;
    plan_.as_is = planned(now, device_);
    Search order(evaluator_, space_, placement_, device_, plan_.limit, request_.objective);
    const auto key = [&](const Candidate& c) { return std::pair(kind_of(c.changes), order.cost(c)); };
    for (const Candidate* c : comparable()) {
      if (!fits(*c) || (best_ != nullptr && !(key(*c) < key(*best_)))) continue;
      best_ = c;
      plan_.best = {kind_of(c->changes), planned(*c, device_)};
    }
    if (!plan_.best) plan_.unanswered = "it was ended before anything that fits was found";
    return std::move(plan_);
  }

  void find() {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      plan_.best.reset();
      best_ = smallest_ = nullptr;
      if (request_.objective == Objective::sequence) {
        longest();
      } else {
        search();
      }
      if (!evaluator_.extrapolates() || confirmed()) return;
    }
    plan_.best.reset();
    best_ = nullptr;
  }

  // Executes the answer in full, and the run as it is beside it. What then needs more than was thought makes the next search more careful.
  bool confirmed() {
    const Candidate* answer = best_ ? best_ : smallest_;
    if (answer == nullptr) return true;
    const Patch changes = answer->changes;
    const Bytes thought = answer->needs[device_].device.high;
    evaluator_.confirm({changes, Patch()});
    const Candidate& found = evaluator_.evaluate(changes);
    // The smallest may fit though a more careful search found nothing.
    if (best_ == nullptr && fits(found)) plan_.best = {kind_of(changes), {}}, best_ = &found;
    if (plan_.best) plan_.best->run = planned(found, device_);
    if (best_ == nullptr || fits(found)) return true;
    if (found.needs.empty()) return false;
    searched_limit_ =
        share(searched_limit_, static_cast<double>(thought.count) / static_cast<double>(found.needs[device_].device.high.count));
    return false;
  }

  // The most that one of its levers disturbs.
  LeverKind kind_of(const Patch& changes) const {
    LeverKind most = LeverKind::same_result;
    for (const Lever& l : levers_)
      if (changes.includes(l.settings)) most = std::max(most, l.kind);
    return most;
  }

  // The least disturbance that fits is the plan.
  void search() {
    Search search(evaluator_, space_, placement_, device_, searched_limit_, request_.objective);
    for (const LeverKind kind : kKinds) {
      best_ = search.best(kind);
      if (best_ == nullptr) continue;
      if (const Candidate* roomier = with_room(kind)) best_ = roomier;
      plan_.best = {kind, planned(*best_, device_)};
      break;
    }
    smallest_ = search.smallest();
  }

  // Nearly as fast, and not so near to the limit; null: there is none, or the best is it.
  const Candidate* with_room(LeverKind kind) {
    const Bytes limit = share(searched_limit_, 1 - request_.prefer_free);
    if (request_.objective != Objective::throughput || best_->needs[device_].device.high <= limit) return nullptr;
    Search search(evaluator_, space_, placement_, device_, limit, request_.objective);
    const Candidate* c = search.best(kind);
    return c && std::get<0>(search.cost(*c)) <= kNextToNoTime * std::get<0>(search.cost(*best_)) ? c : nullptr;
  }

  // With what the trainer has no word for: less of a disturbance, or faster.
  void beyond_words() {
    if (!request_.beyond_words || evaluator_.extrapolates()) return;
    Constraints wide = request_.constraints;
    wide.without = {};
    wide.placements = true;
    const Space space = supported_space(evaluator_, wide, device_);
    Search search(evaluator_, space, placement_, device_, plan_.limit, request_.objective);
    for (const LeverKind kind : kKinds) {
      if (best_ != nullptr && kind > plan_.best->kind) return;
      const bool same_kind = best_ != nullptr && kind == plan_.best->kind;
      const Candidate* c = search.best(kind, same_kind ? best_ : nullptr);
      if (c == nullptr || (same_kind && std::get<0>(search.cost(*c)) > kWorthAChange * std::get<0>(search.cost(*best_)))) continue;
      plan_.beyond = {kind, planned(*c, device_)};
      return;
    }
  }

  // More of a disturbance, when it is faster: roughly, without choosing blocks, and nothing that goes to the host.
  void alternatives() {
    if (best_ == nullptr || evaluator_.extrapolates()) return;
    Space narrow = space_;
    narrow.offloads = {Choice{}};
    narrow.placements = false;
    const Patch& plan = best_->changes;
    std::erase_if(narrow.groups, [&](const Choice& g) {
      return g.changes.contains("offload_optimizer") || g.changes.contains("optimizer_in_backward") ||
             (plan.contains("precision") && g.changes["precision"] != plan["precision"]);
    });
    std::erase_if(narrow.losses, [&](const Choice& l) { return !l.changes.contains("loss_kernel") && plan.contains("loss_kernel"); });
    Search search(evaluator_, narrow, placement_, device_, plan_.limit, request_.objective);
    const Candidate* best = best_;
    for (const LeverKind kind : kKinds) {
      if (kind <= plan_.best->kind) continue;
      const Candidate* c = search.best(kind, best);
      if (c == nullptr || std::get<0>(search.cost(*c)) > kWorthAChange * std::get<0>(search.cost(*best))) continue;
      plan_.alternatives.push_back({kind, planned(*c, device_)});
      best = c;
    }
  }

  // The longest sequence of the least disturbing recipe: doubled while it fits, then halved in between.
  void longest() {
    for (const LeverKind kind : kKinds) {
      const Candidate* best = nullptr;
      const auto fitting = [&](int64_t seq) {
        Space s = space_;
        s.lengths = {Choice{Patch{{"seq", seq}}}};
        Search search(evaluator_, s, placement_, device_, searched_limit_, Objective::memory);
        const Candidate* c = search.best(kind);
        if (search.smallest() && (!smallest_ || search.smallest()->needs[device_].device.high < smallest_->needs[device_].device.high))
          smallest_ = search.smallest();
        if (c) best = c;
        return c != nullptr;
      };
      const int64_t unit = shape_unit(request_.job);
      int64_t good = 0, bad = 0;
      for (int64_t n = std::max<int64_t>(1, request_.job.seq / unit); bad == 0 && n < (int64_t{1} << 20); n *= 2)
        (fitting(n * unit) ? good : bad) = n;
      if (good == 0)
        for (int64_t n = bad / 2; n > 0 && good == 0; n /= 2) (fitting(n * unit) ? good : bad) = n;
      if (good == 0) continue;
      // To a sixteenth: finer steps are within what sequences are padded to.
      while (bad - good > std::max<int64_t>(1, good / 16)) (fitting((good + bad) / 2 * unit) ? good : bad) = (good + bad) / 2;
      fitting(good * unit);
      best_ = best;
      plan_.best = {kind, planned(*best, device_)};
      return;
    }
  }

  bool fits(const Candidate& c) const { return !c.needs.empty() && plimsoll::fits(c.needs[device_], plan_.limit); }

  void shortage() {
    if (smallest_ == nullptr) {
      plan_.unanswered = plan_.as_is_impossible.empty() ? "no change of it can be run" : plan_.as_is_impossible;
    } else if (const Need& need = smallest_->needs[device_]; need.verdict == Verdict::unknown) {
      plan_.unanswered = need.unknown;
    } else if (need.device.high <= plan_.limit) {  // only where what was extrapolated did not hold, again and again
      plan_.unanswered = "what short runs promised did not hold in full ones; --full executes every candidate in full";
    } else {
      plan_.shortage = why_nothing_fits(request_, evaluator_, placement_, plan_, *smallest_, device_);
    }
  }

  // Those that answer the same question.
  std::vector<const Candidate*> comparable() const {
    std::vector<const Candidate*> all;
    for (const Candidate* c : evaluator_.all())
      if (answers_the_question(*c)) all.push_back(c);
    return all;
  }

  // Those that no other beats in both memory and time, the smallest first: of the candidates with the same result, then what more of a
  // change adds to them. A plan heads the curve of its own kind.
  void front() {
    std::vector<const Candidate*> all;
    for (const LeverKind kind : kKinds) {
      for (const Candidate* c : comparable())
        if (kind_of(c->changes) == kind) all.push_back(c);
      for (const Candidate* c : pareto_front(all, device_))
        if (kind_of(c->changes) == kind) plan_.front.push_back({kind, planned(*c, device_)});
    }
  }

  // What is only shown (Lever::searched) is no plan, however fast it is.
  bool answers_the_question(const Candidate& c) const {
    if (c.needs.empty() || (space_.global && c.global_batch() != global_of(c))) return false;
    if (c.changes.contains("seq") || c.changes.contains("config")) return false;
    if (one_pool(plan_.device) && moves_to_host(c.changes)) return false;
    const auto only_shown = [&](const Lever& l) { return !l.searched && c.changes.includes(l.settings); };
    return std::none_of(levers_.begin(), levers_.end(), only_shown);
  }

  // What a candidate's batch should be: the one that is kept, or the nearest that its devices can make.
  int64_t global_of(const Candidate& c) const {
    const std::vector<Split> splits = splits_of(space_, c.job);
    const auto it = std::find_if(splits.begin(), splits.end(), [&](const Split& s) { return s.batch == c.job.batch; });
    return it == splits.end() ? -1 : global_batch(*it, replica_count(c.job));
  }

  const PlanRequest& request_;
  const std::vector<Lever> levers_ = levers_for(request_.job);
  Evaluator& evaluator_;
  const Space& space_;
  const Placement& placement_;
  size_t device_;
  const Candidate* best_ = nullptr;
  const Candidate* smallest_ = nullptr;
  Bytes searched_limit_;  // less than the plan's when what was extrapolated was found to need more
  Plan plan_;
};

// Blocks as the model runs them in one micro-step; none where it cannot run as it is, or is no sequence of blocks.
std::vector<BlockCost> blocks_of(Job job, const std::vector<TargetDevice>& devices, bool of_short_run) {
  if (job.program.framework != Framework::pytorch || devices.empty()) return {};
  if (!is_distributed(job)) job.steps = job.accumulation = 1;
  if (of_short_run) job.seq = ShortRuns::kMore;
  return block_costs(job, devices.front().spec);
}

// On a device that shares its memory with the host, what the system and the process itself take there.
TargetDevice beside_the_host(TargetDevice device, const Job& job) {
  if (!one_pool(device) || !device.capacity) return device;
  if (device.others.count == 0) device.others = default_reserve().size.bytes;
  device.others += host_memory(job, HostFacts{}, reserve_of({}, "")).steady_peak.bytes;
  return device;
}

}  // namespace

std::vector<Plan> make_plans(const PlanRequest& request, std::vector<TargetDevice> devices) {
  for (TargetDevice& d : devices) d = beside_the_host(std::move(d), request.job);
  Evaluator evaluator(request.job, devices, request.calibration, request.cluster, !request.full && loops_over_tokens(request.job),
                      request.progress, request.known);
  const Placement placement(blocks_of(request.job, devices, evaluator.extrapolates()), request.job.checkpointing.reentrant);
  std::vector<Plan> out;
  for (size_t i = 0; i < devices.size(); ++i) try {
      const Space space = supported_space(evaluator, request.constraints, i);
      out.push_back(Planner(request, evaluator, space, placement, i).make());
      out.back().executed = evaluator.executed();
      out.back().taken = evaluator.taken();
    } catch (const Cancelled&) {
      if (!request.keep_best || out.empty()) throw;
      return out;
    }
  return out;
}

}  // namespace plimsoll
