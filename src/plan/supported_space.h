// The choices that this very model has on that device: seen by executing each alone.
#pragma once

#include "plan/space.h"

namespace plimsoll {

// What the model cannot do is no choice: a fused loss without a language model's head. Nor is what costs nothing and takes more memory.
Space supported_space(Evaluator& evaluator, const Constraints& constraints, size_t device);

}  // namespace plimsoll
