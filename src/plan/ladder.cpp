#include "plan/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <set>

namespace plimsoll {

namespace {

constexpr std::pair<const char*, double> kRungs[]{{"safe", 0.65}, {"medium", 0.75}, {"aggressive", 0.85}, {"maximum", 0.95}};
constexpr size_t kMostRungs = 10;

// As in the job, where a change only says that again.
Space only(const Space& space, const Patch& recipe) {
  Space s = space;
  s.free = {};
  s.groups = {Choice{recipe.without({"batch", "accumulation", "checkpointing"})}};
  s.losses = s.offloads = s.lengths = {Choice{}};
  return s;
}

// Of one knob, what a person would do first.
int order_of(const Lever& l) {
  static constexpr const char* kOrder[]{"allocator", "donate", "output",        "attention", "optimizer", "ddp",
                                        "batch",     "loss",   "checkpointing", "update",    "ema",       "precision",
                                        "offload",   "swap",   "quantization",  "adapter",   "seq",       "model"};
  const auto* it = std::find(std::begin(kOrder), std::end(kOrder), l.knob);
  return static_cast<int>(l.kind) * 100 + static_cast<int>(it - std::begin(kOrder));
}

// The next smaller micro-batch that makes the same global one; where that is free, half of it.
std::optional<Lever> smaller_batch(const Space& space, const Job& job) {
  if (!space.batch || job.batch == 1) return std::nullopt;
  Split next{(job.batch + 1) / 2, job.program.framework == Framework::jax ? 1 : checked_mul(job.accumulation, 2)};
  if (space.global && job.program.framework == Framework::pytorch)
    for (const Split& s : splits_of(space, job))
      if (s.batch <= (job.batch + 1) / 2) next = s;
  return Lever{"batch",
               fmt::format("micro-batch {}", next.batch),
               {{"batch", next.batch}, {"accumulation", next.accumulation}},
               job.program.framework == Framework::jax ? LeverKind::different_training : LeverKind::same_result,
               "little while it still fills the device"};
}

}  // namespace

PlannedRun planned(const Candidate& c, size_t device) {
  return {c.changes, c.job, c.needs.empty() ? Need{} : c.needs[device], c.global_batch(), c.extrapolated};
}

double share_of(const Need& need, const TargetDevice& device) {
  return device.capacity ? static_cast<double>(need.device.high.count) / static_cast<double>(device.capacity->bytes.count) : 0;
}

std::vector<Rung> ladder_up(Evaluator& evaluator, const Space& space, const Placement& placement, const Plan& plan, size_t device) {
  std::vector<Rung> out;
  if (!plan.best || !plan.device.capacity) return out;
  const Space fixed = only(space, plan.best->run.changes);
  const auto within = [&](double share) {
    const Bytes limit{static_cast<int64_t>(share * static_cast<double>(room_on(plan.device).count))};
    return Search(evaluator, fixed, placement, device, std::min(limit, plan.limit), plan.objective).best(LeverKind::same_result);
  };
  std::vector<std::future<const Candidate*>> found;
  for (const auto& [name, share] : kRungs) found.push_back(std::async(std::launch::async, within, share));
  for (size_t i = 0; i < found.size(); ++i) {
    const char* name = kRungs[i].first;
    const Candidate* c = found[i].get();
    if (!c) continue;
    if (!out.empty() && out.back().run.changes == c->changes) {
      out.back().name += std::string(", ") + name;
    } else {
      out.push_back({name, planned(*c, device), share_of(c->needs[device], plan.device)});
    }
  }
  return out;
}

std::vector<Rung> ladder_down(Evaluator& evaluator, const Space& space, const Plan& plan, const Patch& start, size_t device) {
  std::vector<Rung> out;
  const Candidate* now = &evaluator.evaluate(start);
  std::set<std::string> tried;
  const auto need = [&](const Candidate& c) { return static_cast<double>(c.needs[device].device.bytes.count); };
  const double enough = now->needs.empty() ? 0 : need(*now) / 5;
  while (out.size() < kMostRungs && !now->needs.empty() && need(*now) > enough) {
    std::vector<Lever> levers = levers_for(now->job, plan.device);
    std::erase_if(levers, [&](const Lever& l) { return l.knob == "batch" || !l.searched || space.excludes(l); });
    if (std::optional<Lever> smaller = smaller_batch(space, now->job)) levers.push_back(*smaller);
    std::stable_sort(levers.begin(), levers.end(), [](const Lever& a, const Lever& b) { return order_of(a) < order_of(b); });
    const Candidate* next = nullptr;
    std::string name;
    for (const Lever& l : levers) {
      if (tried.contains(l.name) && l.knob != "batch" && l.knob != "seq") continue;  // those may be taken again and again
      tried.insert(l.name);
      const Candidate& c = evaluator.evaluate(merged(now->changes, l.settings));
      if (c.needs.empty() || need(c) > 0.98 * need(*now)) continue;
      next = &c;
      name = l.name;
      break;
    }
    if (!next) break;
    out.push_back({name, planned(*next, device), share_of(next->needs[device], plan.device)});
    now = next;
  }
  return out;
}

}  // namespace plimsoll
