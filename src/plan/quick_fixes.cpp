#include "plan/quick_fixes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "plan/ladder.h"

namespace plimsoll {

namespace {

constexpr int64_t kNoticed = 200;  // a change of less than this part is none

std::string why_nothing(const QuickFix& f, Phase peak) {
  static const std::set<std::string> activations{"checkpointing", "offload", "attention", "loss", "output", "batch", "seq", "compile"};
  if (activations.contains(f.lever.knob) && (peak == Phase::optimizer || peak == Phase::setup))
    return fmt::format("the peak is in the phase {}, where no activations are left", phase_name(peak));
  return fmt::format("the peak, in the phase {}, moves by {} only", phase_name(peak), to_string(Bytes{std::abs(f.saving.count)}));
}

// Seconds a sample as a part of what they are; not a number: not known.
double slower_by(const Candidate& now, const Need& before, const Candidate& c, const Need& after) {
  if (!before.time || !after.time) return std::nan("");
  return after.time->seconds * static_cast<double>(now.global_batch()) / (before.time->seconds * static_cast<double>(c.global_batch())) - 1;
}

QuickFix effect_of(const Lever& lever, const Candidate& now, const Candidate& c, size_t device) {
  QuickFix f{lever, LeverOutcome::impossible, planned(c, device), {}, 0, c.impossible};
  if (c.needs.empty()) return f;
  const Need &before = now.comparable()[device], &after = c.comparable()[device];
  f.saving = before.device.bytes - after.device.bytes;
  f.slower = slower_by(now, before, c, after);
  const int64_t noticed = before.device.bytes.count / kNoticed;
  f.outcome = f.saving.count > noticed    ? LeverOutcome::saves
              : f.saving.count < -noticed ? LeverOutcome::costs_memory
                                          : LeverOutcome::nothing;
  if (f.outcome == LeverOutcome::nothing) f.why = why_nothing(f, now.peak_phase);
  return f;
}

}  // namespace

std::vector<QuickFix> quick_fixes(Evaluator& evaluator, size_t device, const Space* space) {
  const Candidate& now = evaluator.evaluate(Patch());
  if (now.needs.empty()) return {};
  std::vector<Lever> levers = levers_for(evaluator.job(), evaluator.devices()[device]);
  if (space) std::erase_if(levers, [&](const Lever& l) { return !space->without.empty() && space->excludes(l); });
  std::vector<Patch> all;
  for (const Lever& l : levers) all.push_back(l.settings);
  evaluator.prepare(all);
  std::vector<QuickFix> fixes;
  for (size_t i = 0; i < levers.size(); ++i) fixes.push_back(effect_of(levers[i], now, evaluator.evaluate(all[i]), device));
  const auto key = [&](const QuickFix& f) {
    const double time = std::isfinite(f.slower) ? std::max(0.0, f.slower) : 0;
    return std::tuple(f.outcome, f.lever.kind, time > 0.01 ? time * 1e9 / std::max<double>(1, static_cast<double>(f.saving.count)) : 0.0,
                      -f.saving.count);
  };
  std::stable_sort(fixes.begin(), fixes.end(), [&](const QuickFix& a, const QuickFix& b) { return key(a) < key(b); });
  return fixes;
}

}  // namespace plimsoll
