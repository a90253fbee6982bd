// The stages of a pipeline, each executed: the one with the largest peak is the answer.
#pragma once

#include <functional>

#include "step/train.h"

namespace plimsoll {

// `run(stage, true)` is what is wanted of the largest, which is executed once more if that is more than its peak.
Simulation largest_stage(int64_t stages, bool wants_more, const std::function<Simulation(int64_t stage, bool whole)>& run);

}  // namespace plimsoll
