// What the run of one stage of a pipeline (Megatron-LM's, torchtitan's) leaves behind.
#pragma once

#include <vector>

#include "step/train.h"
#include "tensor/tape.h"

namespace plimsoll {

// Takes the trace from the tape. All of `parameters` are trained; `details`: with a list of them.
Simulation stage_result(Tape& tape, const std::vector<Parameter*>& parameters, Work work, bool details);

}  // namespace plimsoll
