#include "plan/why_nothing_fits.h"

#include <fmt/format.h>

#include <algorithm>

#include "hardware/catalogue.h"
#include "job/distribution.h"
#include "plan/ladder.h"
#include "plan/supported_space.h"

namespace plimsoll {

namespace {

constexpr int64_t kShortest = 32;       // nobody trains on less
constexpr int64_t kMostDevices = 1024;  // that are worth naming

class NearMisses {
 public:
  NearMisses(const PlanRequest& request, Evaluator& evaluator, const Placement& placement, const Plan& plan, const Candidate& smallest,
             size_t device)
      : request_(request), evaluator_(evaluator), placement_(placement), plan_(plan), smallest_(smallest), device_(device) {}

  std::vector<GoalChange> all() {
    less_left_free();
    shorter();
    what_was_kept();
    more_devices();
    a_larger_device();
    return std::move(found_);
  }

 private:
  const Need* fitting(const Patch& changes) {
    const Candidate& c = evaluator_.evaluate(changes);
    return !c.needs.empty() && fits(c.needs[device_], plan_.limit) ? &c.needs[device_] : nullptr;
  }

  void add(std::string what, std::string flags, const Candidate& c) {
    found_.push_back({std::move(what), std::move(flags), planned(c, device_)});
  }

  void less_left_free() {
    if (request_.leave_free > 0 && fits(smallest_.needs[device_], room_on(plan_.device)))
      add("all of the device", "without --leave-free", smallest_);
  }

  // The longest that fits: by halves, then between the last two in steps that data is padded to, to a sixteenth.
  void shorter() {
    const int64_t now = request_.job.seq, unit = shape_unit(request_.job);
    const auto at = [&](int64_t seq) { return merged(smallest_.changes, {{"seq", seq}}); };
    int64_t good = now / 2, bad = now;
    while (good >= kShortest && !fitting(at(good))) bad = std::exchange(good, good / 2);
    if (good < kShortest) return;
    while (bad - good > std::max(unit, good / 16)) {
      const int64_t between = (good + bad) / 2 / unit * unit;
      if (between <= good) break;
      (fitting(at(between)) ? good : bad) = between;
    }
    add(fmt::format("{} of {} instead of {}", request_.job.inputs == InputKind::image ? "images" : "sequences", good, now),
        fmt::format("--seq {}", good), evaluator_.evaluate(at(good)));
  }

  void what_was_kept() {
    for (const Knob& k : knobs()) {
      if (!request_.constraints.keep.contains(k.name)) continue;
      Constraints wider = request_.constraints;
      wider.keep.erase(k.name);
      const Space space = supported_space(evaluator_, wider, device_);
      Search search(evaluator_, space, placement_, device_, plan_.limit, Objective::throughput);
      for (const LeverKind kind : {LeverKind::same_result, LeverKind::different_numerics, LeverKind::different_training}) {
        const Candidate* c = search.best(kind);
        if (c == nullptr) continue;
        add(fmt::format("{} free to change", k.name), fmt::format("without --keep {}", k.name), *c);
        break;
      }
    }
  }

  // The same on 2, 4, 8, ... devices that share weights, gradients and states.
  void more_devices() {
    if (is_distributed(request_.job) || request_.job.program.framework != Framework::pytorch) return;
    for (int64_t n = 2; n <= kMostDevices; n *= 2) {
      const int64_t accumulation = std::max<int64_t>(1, smallest_.job.accumulation / n);
      const Patch changes = merged(smallest_.changes, {{"fsdp", {{"world", n}}}, {"accumulation", accumulation}});
      const Candidate& c = evaluator_.evaluate(changes);
      if (c.needs.empty()) return;  // cannot be sharded at all
      if (!fitting(changes)) continue;
      return add(fmt::format("{} devices with FSDP2", n), fmt::format("--num-gpus {}", n), c);
    }
  }

  // The smallest of the catalogue that would do, of the same maker.
  void a_larger_device() {
    std::vector<TargetDevice> larger;
    for (const DeviceSpec& d : catalogue()) {
      if (d.vendor != plan_.device.spec.vendor || d.memory != plan_.device.spec.memory) continue;
      TargetDevice target = target_device(d);
      if (one_pool(target)) target.others = plan_.device.others;  // the host's part of it
      if (target.capacity && target.capacity->low > plan_.limit) larger.push_back(target);
    }
    std::stable_sort(larger.begin(), larger.end(), [](const auto& a, const auto& b) { return a.capacity->low < b.capacity->low; });
    Fitting fitting(smallest_.job);
    for (const TargetDevice& d : larger) {
      const Fit f = fitting.need_on(d);
      if (f.verdict != Verdict::fits) continue;
      add("a larger device: " + d.name, "--gpu " + d.spec.id, smallest_);
      found_.back().run.need = need_of(f);
      return;
    }
  }

  const PlanRequest& request_;
  Evaluator& evaluator_;
  const Placement& placement_;
  const Plan& plan_;
  const Candidate& smallest_;
  size_t device_;
  std::vector<GoalChange> found_;
};

}  // namespace

Shortage why_nothing_fits(const PlanRequest& request, Evaluator& evaluator, const Placement& placement, const Plan& plan,
                          const Candidate& smallest, size_t device) {
  Shortage s;
  s.smallest = planned(smallest, device);
  s.missing = s.smallest.need.device.high - plan.limit;
  s.changes = NearMisses(request, evaluator, placement, plan, smallest, device).all();
  return s;
}

}  // namespace plimsoll
