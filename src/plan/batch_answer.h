// The largest micro-batch that fits with a recipe, and the one that leaves a tenth.
#pragma once

#include "plan/plan.h"

namespace plimsoll {

// None where the batch must stay as it is, or where the recipe or the device's size is not known. The global batch that is to be kept is
// made of as many micro-steps as it then takes.
std::optional<BatchAnswer> batch_answer(Evaluator& evaluator, const Space& space, const Plan& plan, const Patch& from, size_t device);

}  // namespace plimsoll
