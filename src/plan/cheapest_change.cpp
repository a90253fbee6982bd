#include "plan/cheapest_change.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "plan/lower_bound.h"

namespace plimsoll {

namespace {

// How a lever's cost in time begins, the least first. What is not here stands between the two halves.
constexpr std::array<std::pair<const char*, int>, 12> kCosts{{{"none", 0},
                                                              {"a few percent", 1},
                                                              {"little", 2},
                                                              {"a quarter", 3},
                                                              {"about 17 %", 4},
                                                              {"up to 33 %", 6},
                                                              {"about 33 %", 6},
                                                              {"a slower update", 7},
                                                              {"weights over PCIe", 8},
                                                              {"an update on the CPU", 9},
                                                              {"copies over PCIe", 9},
                                                              {"much", 10}}};
constexpr int kUnlisted = 5;

int cost_rank(const Lever& lever) {
  for (const auto& [words, rank] : kCosts)
    if (lever.cost.starts_with(words)) return rank;
  return kUnlisted;
}

// A library that has to be installed is a cost, too.
bool needs_library(const Lever& lever) { return lever.cost.find("needs ") != std::string::npos; }

// Libraries of kernels, and the settings of the caching allocator, are for CUDA and HIP.
bool works_on(const DeviceSpec& device, const Lever& lever) {
  const bool cuda = device.vendor == "NVIDIA" || device.vendor == "AMD";
  return lever.searched && (cuda || (!needs_library(lever) && lever.knob != "allocator"));
}

// Weights, gradients and states alone are more than there is.
bool cannot_fit(const Job& changed, const TargetDevice& device, int64_t parameters) {
  return device.capacity && lower_bound(changed, parameters) > device.capacity->bytes - device.others;
}

}  // namespace

std::vector<Lever> by_preference(std::vector<Lever> levers) {
  const auto key = [](const Lever& l) { return std::tuple(l.kind, !l.free, needs_library(l), cost_rank(l)); };
  std::stable_sort(levers.begin(), levers.end(), [&](const Lever& a, const Lever& b) { return key(a) < key(b); });
  return levers;
}

CheapestChange cheapest_change(Runs& runs, const Job& job, const Fit& now, int64_t parameters, const OnProgress& progress) {
  CheapestChange out;
  std::vector<Lever> levers = by_preference(levers_for(job, now.device));
  std::erase_if(levers, [&](const Lever& l) { return !works_on(now.device.spec, l); });
  const int64_t whole = whole_parameters(job, parameters);
  for (size_t i = 0; i < levers.size(); ++i) {
    const Outcome<Job> changed = try_patched(job, levers[i].settings, "cheapest change");
    if (!changed) continue;
    if (cannot_fit(*changed, now.device, whole)) {
      ++out.left_out;
      continue;
    }
    Runs own(&runs);
    LeverEffect effect = effect_on(own, job, levers[i], now);
    own.forget_large();
    runs.take(std::move(own));
    if (progress && !progress(i + 1, levers.size(), "changes tried")) throw Cancelled{};
    if (effect.outcome == LeverOutcome::impossible) continue;
    ++out.executed;
    if (effect.verdict == Verdict::fits) {
      out.fits = std::move(effect);
      out.tight.reset();
      return out;
    }
    if (effect.verdict == Verdict::tight && now.verdict == Verdict::does_not_fit && !out.tight) out.tight = std::move(effect);
  }
  return out;
}

}  // namespace plimsoll
