// Steps that a person can take one after the other: upwards while memory is left, downwards after an OOM. Every rung was executed.
#pragma once

#include "plan/plan.h"

namespace plimsoll {

// The recipe of `best` with the batch and the checkpoints that stay within 65, 75, 85 and 95 % of the device; rungs that are alike are one.
std::vector<Rung> ladder_up(Evaluator& evaluator, const Space& space, const Placement& placement, const Plan& plan, size_t device);

// From `start`, one change added after the other, those that disturb least first; each saves at least 2 % of what is left, down
// to a fifth of the start. What is to be kept stays; what is turned only with leave (shorter sequences) comes last.
std::vector<Rung> ladder_down(Evaluator& evaluator, const Space& space, const Plan& plan, const Patch& start, size_t device);

PlannedRun planned(const Candidate& c, size_t device);
double share_of(const Need& need, const TargetDevice& device);

}  // namespace plimsoll
