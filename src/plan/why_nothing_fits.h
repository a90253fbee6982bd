// What to say when nothing fits: how much is missing at the least, and the smallest changes of the question that would fit.
#pragma once

#include "plan/plan.h"

namespace plimsoll {

// `smallest` does not fit. The changes come in the order of how little they ask for.
Shortage why_nothing_fits(const PlanRequest& request, Evaluator& evaluator, const Placement& placement, const Plan& plan,
                          const Candidate& smallest, size_t device);

}  // namespace plimsoll
