#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <limits>
#include <set>

#include "hardware/catalogue.h"
#include "job/writer.h"
#include "plan/ladder.h"
#include "plan/short_runs.h"

namespace plimsoll {

namespace {

constexpr LeverKind kKinds[]{LeverKind::same_result, LeverKind::other_numbers, LeverKind::other_training};
constexpr double kRecommendedShare = 0.9;
constexpr double kWorthAChange = 0.97;     // of the time that the plan takes
constexpr size_t kManyEvents = 2'000'000;  // seconds for every candidate
constexpr int kAttempts = 4;               // searches until what was extrapolated holds when it is executed

Bytes share(Bytes b, double part) { return Bytes{static_cast<int64_t>(static_cast<double>(b.count) * part)}; }

// What this model cannot do is no choice: a fused loss without a language model's head. Nor is what costs nothing and takes more memory.
Space possible_space(const Job& job, const Wishes& wishes, Evaluator& evaluator, size_t device) {
  Space space = space_of(job, wishes, evaluator.devices()[device]);
  const std::vector<std::vector<Choice>*> all{&space.losses, &space.offloads, &space.lengths};
  std::vector<Recipe> alone{no_changes()};
  for (const auto* choices : all)
    for (const Choice& c : *choices) alone.push_back(c.changes);
  alone.insert(alone.end(), space.costless.begin(), space.costless.end());
  evaluator.prepare(alone);
  const Candidate& now = evaluator.of(no_changes());
  if (now.needs.empty()) return space;
  // Expandable segments may take more where blocks are not split.
  space.free = no_changes();
  for (const Recipe& c : space.costless) {
    const Candidate& with_it = evaluator.of(c);
    if (!with_it.needs.empty() &&
        static_cast<double>(with_it.needs[device].device.high.count) <= 1.005 * static_cast<double>(now.needs[device].device.high.count))
      space.free = merged(space.free, c);
  }
  for (auto* choices : all) std::erase_if(*choices, [&](const Choice& c) { return !evaluator.of(c.changes).impossible.empty(); });
  return space;
}

// The same with so many ranks more; nothing where each rank has all, or where the layout binds their number.
Recipe with_ranks(const ParallelSettings& p, int64_t more) {
  if (p.fsdp && p.fsdp->replicas == 1 && p.fsdp->reshard_to == 0) {
    nlohmann::json fsdp = to_json(*p.fsdp);
    fsdp["world"] = p.fsdp->world + more;
    return {{"fsdp", fsdp}};
  }
  if (!p.ddp || !p.zero1) return no_changes();
  nlohmann::json ddp = to_json(*p.ddp), zero1 = to_json(*p.zero1);
  ddp["world"] = zero1["world"] = p.ddp->world + more;
  return {{"ddp", ddp}, {"zero1", zero1}};
}

class Planner {
 public:
  Planner(const PlanRequest& request, Evaluator& evaluator, const Space& space, const Placement& placement, size_t device)
      : request_(request), evaluator_(evaluator), space_(space), placement_(placement), device_(device) {
    plan_.device = evaluator.devices()[device];
    plan_.objective = request.objective;
    plan_.global = space.global;
    plan_.calibration = request.calibration.source;
    if (plan_.device.capacity) plan_.limit = share(plan_.device.capacity->low, 1 - request.leave_free);
    searched_limit_ = plan_.limit;
    if (evaluator.extrapolates()) plan_.extrapolated_from = {ShortRuns::kFew, ShortRuns::kMore};
  }

  Plan make() {
    const Candidate& now = evaluator_.of(no_changes());
    plan_.as_is = planned(now, device_);
    plan_.as_is_impossible = now.impossible;
    plan_.left_out = levers_left_out(request_.job, plan_.device);
    find();
    if (!plan_.best) shortage();
    plan_.as_is = planned(now, device_);
    plan_.shortened = !request_.brief && !request_.full && !evaluator_.extrapolates() && now.events > kManyEvents;
    if (!request_.brief && !plan_.shortened) {
      const Recipe from = plan_.best ? plan_.best->run.changes : no_changes();
      // Independent of each other, and what is executed is the same in any order.
      auto others = std::async(std::launch::async, [&] {
        alternatives();
        plan_.down = ladder_down(evaluator_, space_, plan_, from, device_);
      });
      fixes();
      plan_.up = ladder_up(evaluator_, space_, placement_, plan_, device_);
      batches(from);
      sensitivity(from);
      others.get();
      front();
    }
    return std::move(plan_);
  }

 private:
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
    const Recipe changes = answer->changes;
    const Bytes thought = answer->needs[device_].device.high;
    evaluator_.confirm({changes, no_changes()});
    const Candidate& found = evaluator_.of(changes);
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
  LeverKind kind_of(const Recipe& changes) const {
    LeverKind most = LeverKind::same_result;
    for (const Lever& l : levers_for(request_.job)) {
      const auto turned = [&](const auto& s) { return changes.contains(s.first) && changes[s.first] == s.second; };
      if (std::all_of(l.settings.begin(), l.settings.end(), turned)) most = std::max(most, l.kind);
    }
    return most;
  }

  // The least disturbance that fits is the plan.
  void search() {
    Search search(evaluator_, space_, placement_, device_, searched_limit_, request_.objective);
    for (const LeverKind kind : kKinds) {
      best_ = search.best(kind);
      if (best_ == nullptr) continue;
      plan_.best = {kind, planned(*best_, device_)};
      break;
    }
    smallest_ = search.smallest();
  }

  // More of a disturbance, when it is faster: roughly, without choosing blocks, and nothing that goes to the host.
  void alternatives() {
    if (best_ == nullptr || evaluator_.extrapolates()) return;
    Space narrow = space_;
    narrow.offloads = {Choice{}};
    narrow.placements = false;
    const Recipe& plan = best_->changes;
    std::erase_if(narrow.groups, [&](const Choice& g) {
      return g.changes.contains("offload_optimizer") || g.changes.contains("optimizer_in_backward") ||
             (plan.contains("precision") && g.changes.value("precision", Recipe()) != plan["precision"]);
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
        s.lengths = {Choice{Recipe{{"seq", seq}}}};
        Search search(evaluator_, s, placement_, device_, searched_limit_, Objective::memory);
        const Candidate* c = search.best(kind);
        if (search.smallest() && (!smallest_ || search.smallest()->needs[device_].device.high < smallest_->needs[device_].device.high))
          smallest_ = search.smallest();
        if (c) best = c;
        return c != nullptr;
      };
      const int64_t unit = request_.job.inputs == InputKind::image ? 32 : 64;
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

  const Candidate* run(const Recipe& changes) {
    const Candidate& c = evaluator_.of(changes);
    return c.needs.empty() ? nullptr : &c;
  }

  bool fits(const Candidate& c) const {
    return !c.needs.empty() && c.needs[device_].verdict == Verdict::fits && c.needs[device_].device.high <= plan_.limit;
  }

  void shortage() {
    if (smallest_ == nullptr) {
      plan_.unanswered = plan_.as_is_impossible.empty() ? "no change of it can be run" : plan_.as_is_impossible;
      return;
    }
    Shortage s;
    s.smallest = planned(*smallest_, device_);
    if (s.smallest.need.verdict == Verdict::unknown) {
      plan_.unanswered = s.smallest.need.unknown;
      return;
    }
    s.missing = s.smallest.need.device.high - plan_.limit;
    if (s.missing.count <= 0) {  // only where what was extrapolated did not hold, again and again
      plan_.unanswered = "what short runs promised did not hold in full ones; --full executes every candidate in full";
      return;
    }
    const Recipe base = smallest_->changes;
    const auto add = [&](std::string what, std::string flags, const Candidate& c) {
      s.changes.push_back({std::move(what), std::move(flags), planned(c, device_)});
    };
    // The longest sequence that would fit, by halves.
    for (int64_t seq = request_.job.seq / 2; seq >= 32 && request_.job.seq > 0; seq /= 2) {
      const Candidate* c = run(merged(base, {{"seq", seq}}));
      if (c == nullptr || !fits(*c)) continue;
      add(fmt::format("{} of {} instead of {}", request_.job.inputs == InputKind::image ? "images" : "sequences", seq, request_.job.seq),
          fmt::format("--seq {}", seq), *c);
      break;
    }
    // What was kept or needs leave.
    for (const Knob& k : knobs()) {
      if (!request_.wishes.keep.contains(k.name)) continue;
      Wishes wider = request_.wishes;
      wider.keep.erase(k.name);
      const Space space = possible_space(request_.job, wider, evaluator_, device_);
      Search search(evaluator_, space, placement_, device_, plan_.limit, Objective::throughput);
      for (const LeverKind kind : kKinds) {
        const Candidate* c = search.best(kind);
        if (c == nullptr) continue;
        add(fmt::format("{} free to change", k.name), fmt::format("without --keep {}", k.name), *c);
        break;
      }
    }
    // The smallest device of the catalogue that would do, of the same maker.
    std::vector<TargetDevice> larger;
    for (const DeviceSpec& d : catalogue()) {
      if (d.vendor != plan_.device.spec.vendor || d.memory != plan_.device.spec.memory) continue;
      const TargetDevice target = target_device(d);
      if (target.capacity && target.capacity->low > plan_.limit) larger.push_back(target);
    }
    std::stable_sort(larger.begin(), larger.end(), [](const auto& a, const auto& b) { return a.capacity->low < b.capacity->low; });
    Fitting fitting(smallest_->job);
    for (const TargetDevice& d : larger) {
      if (const Fit f = fitting.need(d); f.verdict == Verdict::fits) {
        add("a larger device: " + d.name, "--gpu " + d.spec.id, *smallest_);
        s.changes.back().run.need = {f.memory.device, f.memory.allocated.bytes, f.verdict, "", {}};
        break;
      }
    }
    plan_.shortage = std::move(s);
  }

  // Why a change of that knob does nothing here.
  std::string why_not(const QuickFix& f) const {
    static const std::set<std::string> activations{"checkpointing", "offload", "attention", "loss", "output", "batch", "seq", "compile"};
    const std::string_view phase = phase_name(plan_.peak_phase);
    if (activations.contains(f.lever.knob) && (plan_.peak_phase == Phase::optimizer || plan_.peak_phase == Phase::setup))
      return fmt::format("the peak is in the phase {}, where no activations are left", phase);
    return fmt::format("the peak, in the phase {}, moves by {} only", phase, to_string(Bytes{std::abs(f.saving.count)}));
  }

  void fixes() {
    const Candidate& now = evaluator_.of(no_changes());
    if (now.needs.empty()) return;
    plan_.peak_phase = now.peak_phase;
    const std::vector<Lever> levers = levers_for(request_.job, plan_.device);
    std::vector<Recipe> all;
    for (const Lever& l : levers) {
      Recipe c = no_changes();
      for (const auto& [key, value] : l.settings) c[key] = value;
      all.push_back(c);
    }
    evaluator_.prepare(all);
    for (size_t i = 0; i < levers.size(); ++i) {
      const Candidate& c = evaluator_.of(all[i]);
      QuickFix f{levers[i], LeverOutcome::impossible, planned(c, device_), {}, 0, c.impossible};
      if (!c.needs.empty()) {
        const Need &before = now.comparable()[device_], &after = c.comparable()[device_];
        f.saving = before.device.bytes - after.device.bytes;
        f.slower = before.time && after.time ? after.time->seconds * static_cast<double>(now.global_batch()) /
                                                       (before.time->seconds * static_cast<double>(c.global_batch())) -
                                                   1
                                             : std::nan("");
        const int64_t noticed = before.device.bytes.count / 200;
        f.outcome = f.saving.count > noticed    ? LeverOutcome::saves
                    : f.saving.count < -noticed ? LeverOutcome::costs_memory
                                                : LeverOutcome::nothing;
        if (f.outcome == LeverOutcome::nothing) f.why = why_not(f);
      }
      plan_.fixes.push_back(std::move(f));
    }
    // What saves comes first, by how little it disturbs, and by how much it saves for the time it costs.
    const auto key = [&](const QuickFix& f) {
      const double time = std::isfinite(f.slower) ? std::max(0.0, f.slower) : 0;
      return std::tuple(f.outcome, f.lever.kind, time > 0.01 ? time * 1e9 / std::max<double>(1, static_cast<double>(f.saving.count)) : 0.0,
                        -f.saving.count);
    };
    std::stable_sort(plan_.fixes.begin(), plan_.fixes.end(), [&](const QuickFix& a, const QuickFix& b) { return key(a) < key(b); });
  }

  void sensitivity(const Recipe& from) {
    const Candidate* now = run(from);
    if (now == nullptr) return;
    // With one more, or where the model takes no more, with one less.
    const auto add = [&](const char* unit, const std::function<Recipe(int64_t)>& with_more, int64_t units) {
      for (const int64_t step : {units, -units}) {
        const Candidate* other = run(merged(from, with_more(step)));
        if (other == nullptr) continue;
        plan_.sensitivity.push_back(
            {unit, Bytes{(other->comparable()[device_].allocated - now->comparable()[device_].allocated).count / step}});
        return;
      }
    };
    const Job& job = now->job;
    add(
        "sample",
        [&](int64_t n) {
          return Recipe{{"batch", job.batch + n}};
        },
        1);
    if (job.seq > 64)
      add(
          job.inputs == InputKind::image ? "pixel of the side" : "token",
          [&](int64_t n) {
            return Recipe{{"seq", job.seq + n}};
          },
          32);
    layers(from, *now, add);
    if (!with_ranks(job.parallel, 1).empty())
      add(
          "rank", [&](int64_t n) { return with_ranks(job.parallel, n); }, 1);
  }

  // A family has one of these keys; the others change nothing.
  template <class Add>
  void layers(const Recipe& from, const Candidate& now, const Add& add) {
    const int64_t n = static_cast<int64_t>(placement_.blocks());
    if (n == 0) return;
    for (const char* key : {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"}) {
      const Candidate* more = run(merged(from, {{"config", {{key, n + 1}}}}));
      if (more == nullptr || more->parameters == now.parameters) continue;
      add(
          "layer",
          [&](int64_t step) {
            return Recipe{{"config", {{key, n + step}}}};
          },
          1);
      return;
    }
  }

  // Straight lines through two batches lead to the edge, and every answer was executed.
  int64_t largest_batch(const Recipe& from, const std::function<bool(const Candidate&)>& fits) {
    const auto at = [&](int64_t b) {
      Recipe changes = from;
      for (const auto& [key, value, now] : {std::tuple("batch", b, request_.job.batch), {"accumulation", 1, request_.job.accumulation}}) {
        changes.erase(key);
        if (value != now) changes[key] = value;
      }
      return run(changes);
    };
    const auto good = [&](int64_t b) {
      const Candidate* c = at(b);
      return c != nullptr && fits(*c);
    };
    if (!good(1)) return 0;
    int64_t low = 1, high = 0;
    const Candidate *one = at(1), *two = at(2);
    if (two == nullptr) return 1;
    const int64_t slope = std::max<int64_t>(1, (two->needs[device_].device.bytes - one->needs[device_].device.bytes).count);
    int64_t guess = std::clamp<int64_t>(1 + (plan_.device.capacity->low - one->needs[device_].device.high).count / slope, 2, 1 << 20);
    for (int64_t reach = std::max<int64_t>(1, guess / 32); high == 0 || high - low > 1;) {
      if (good(guess)) {
        low = guess;
        guess = high ? (low + high) / 2 : low + reach;
        reach *= 2;
      } else {
        high = guess;
        guess = high - reach > low && low == 1 ? high - reach : (low + high) / 2;
        reach *= 2;
      }
      if (guess >= (1 << 21)) break;
    }
    return low;
  }

  void batches(const Recipe& from) {
    if (!plan_.device.capacity || run(from) == nullptr || !space_.batch) return;
    BatchAnswer a;
    a.maximum = largest_batch(
        from, [&](const Candidate& c) { return c.needs[device_].verdict == Verdict::fits || c.needs[device_].verdict == Verdict::tight; });
    a.recommended = largest_batch(from, [&](const Candidate& c) {
      return fits(c) && c.needs[device_].device.high <= share(plan_.device.capacity->low, kRecommendedShare);
    });
    const int64_t global = plan_.best ? plan_.best->run.global_batch : plan_.as_is.global_batch;
    if (global <= 2) a.note = "an optimizer step of 1 or 2 samples has noisy gradients; 4 or more are steadier: raise accumulation";
    plan_.batch = a;
  }

  void front() {
    std::vector<const Candidate*> all;
    for (const Candidate* c : evaluator_.all())
      if (!c->needs.empty() && (!space_.global || c->global_batch() == global_of(*c)) && !c->changes.contains("seq") &&
          !c->changes.contains("config") && !(one_pool(plan_.device) && moves_to_host(c->changes)))
        all.push_back(c);
    for (const Candidate* c : pareto_front(all, device_)) plan_.front.push_back(planned(*c, device_));
  }

  static bool moves_to_host(const Recipe& changes) {
    for (const auto& [key, value] : changes.items())
      if (plimsoll::moves_to_host(key, value)) return true;
    return false;
  }

  // What a candidate's batch should be: the one that is kept, or the nearest that its devices can make.
  int64_t global_of(const Candidate& c) const {
    const std::vector<Split> splits = splits_of(space_, c.job);
    const auto it = std::find_if(splits.begin(), splits.end(), [&](const Split& s) { return s.batch == c.job.batch; });
    return it == splits.end() ? -1 : global_batch(*it, devices_of(c.job));
  }

  const PlanRequest& request_;
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
  if (job.framework != Framework::pytorch || devices.empty()) return {};
  if (!job.parallel.any()) job.steps = job.accumulation = 1;
  if (of_short_run) job.seq = ShortRuns::kMore;
  try {
    return block_costs(job, devices.front().spec);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::vector<Plan> make_plans(const PlanRequest& request, const std::vector<TargetDevice>& devices) {
  Evaluator evaluator(request.job, devices, request.calibration, request.cluster, !request.full && loops_over_tokens(request.job));
  evaluator.progress = request.progress;
  const Placement placement(blocks_of(request.job, devices, evaluator.extrapolates()), request.job.checkpointing.reentrant);
  std::vector<Plan> out;
  for (size_t i = 0; i < devices.size(); ++i) {
    const Space space = possible_space(request.job, request.wishes, evaluator, i);
    out.push_back(Planner(request, evaluator, space, placement, i).make());
    out.back().executed = evaluator.executed();
  }
  return out;
}

std::string flags_of(const Recipe& changes) {
  Changes all;
  for (const auto& [key, value] : changes.items()) all.emplace_back(key, value);
  return flags_for(all);
}

}  // namespace plimsoll
