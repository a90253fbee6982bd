// What-if: each change of the recipe that may save memory, simulated for this very job. A lever is written in the language of
// job settings, so that what is shown is what to write.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "estimate/fit.h"
#include "job/job.h"
#include "job/patch.h"
#include "util/progress.h"

namespace plimsoll {

// Whether the model that comes out is another one.
enum class LeverKind : uint8_t {
  same_result,         // the same numbers, up to rounding
  different_numerics,  // another precision or optimizer: the run must be looked at again
  different_training,  // other parameters are trained, or on other data
};

struct Lever {
  std::string knob;  // what it turns, as in `plan --keep`: "checkpointing", "optimizer"
  std::string name;  // "checkpoint every block"
  Patch settings;
  LeverKind kind = LeverKind::same_result;
  std::string cost;      // in time, and what else
  bool free = false;     // costs nothing at all: neither time, nor numbers, nor a library
  bool searched = true;  // false: only shown; another of its knob is better in every respect, or it often does not train at all
};

enum class LeverOutcome : uint8_t { saves, nothing, costs_memory, impossible };

struct LeverEffect {
  Lever lever;
  LeverOutcome outcome = LeverOutcome::nothing;
  Bytes device, allocated;             // with the lever
  Bytes saving;                        // of device memory; negative: it takes more
  std::string note;                    // why it does nothing or cannot be done
  Verdict verdict = Verdict::unknown;  // on the device asked for
};

struct WhatIf {
  Bytes device, allocated;  // as it is
  Phase peak_phase = Phase::setup;
  std::string target;                 // the device the verdicts are about; empty: none
  std::vector<LeverEffect> effects;   // the largest saving first, then those that do nothing, then those that cannot be
  std::vector<std::string> left_out;  // names of those that only move bytes to the host, where that is the device: see kOnePool
};

// Whether one of the settings takes bytes off the device by keeping them on the host.
bool moves_to_host(const Patch& settings);
// Whether the host's memory is the device's, so that moving bytes from one to the other gains nothing.
inline bool one_pool(const TargetDevice& device) { return device.spec.memory == MemoryKind::unified; }
inline constexpr const char* kOnePool = "one pool: the host is the device";

// Those that could change this job: what is on already is left out.
std::vector<Lever> levers_for(const Job& job);
// Those that could help on that device.
std::vector<Lever> levers_for(const Job& job, const TargetDevice& device);
// The names of the rest.
std::vector<std::string> levers_left_out(const Job& job, const TargetDevice& device);
const char* to_string(LeverKind k);
const char* to_string(LeverOutcome o);

// The job's model must be resolved. Told after each lever, `progress` may end it: Cancelled.
WhatIf what_if(Runs& runs, const Job& job, const std::optional<TargetDevice>& target = {}, const OnProgress& progress = {});
WhatIf what_if(const Job& job, const std::optional<TargetDevice>& target = {});
// One of them alone, on the device of `now`, which is the job as it is.
LeverEffect effect_on(Runs& runs, const Job& job, const Lever& lever, const Fit& now);

}  // namespace plimsoll
