// What one more costs: bytes of allocated memory for one more sample, token, layer, rank.
#pragma once

#include "plan/plan.h"

namespace plimsoll {

// On top of that recipe. `blocks`: that the model repeats; 0: none.
std::vector<Sensitivity> sensitivities(Evaluator& evaluator, const Patch& from, size_t blocks, size_t device);

}  // namespace plimsoll
