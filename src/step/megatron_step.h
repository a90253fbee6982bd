// Megatron-LM's training loop on one rank: gradients in contiguous fp32 buffers, its (distributed) optimizer, and the schedule of a
// pipeline's micro-batches.
#pragma once

#include "step/train.h"

namespace plimsoll {

// Settings that Megatron has not.
void check_megatron(const Job& job, Problems& out);
// Of the stage that the job names, else of the one with the largest peak.
Simulation simulate_megatron(const Job& job, bool details, bool work);

}  // namespace plimsoll
