// A plan as a fresh file of a launcher or of the HF Trainer: searched inside what such a file and its command can say, and executed as both
// are read before anything is printed.
#pragma once

#include <vector>

#include "api/plan.h"
#include "plan/plan.h"

namespace plimsoll {

// Throws an Error for several devices, and for a kind that is not known.
std::vector<Plan> plans_to_generate(const SearchRequest& request, const PlanRequest& plan, const std::vector<TargetDevice>& devices);
// Throws an Error that names the settings when file and command do not carry the plan out.
ExitCode answer_with_generated(const SearchRequest& request, const Plan& plan, const Show& show);

}  // namespace plimsoll
