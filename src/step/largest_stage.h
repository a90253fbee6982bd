// Every stage of a pipeline executed: the one with the largest peak is the answer, and all of them are in its table.
#pragma once

#include <functional>

#include "step/train.h"

namespace plimsoll {

Simulation largest_stage(int64_t stages, const std::function<Simulation(int64_t stage)>& run);

}  // namespace plimsoll
