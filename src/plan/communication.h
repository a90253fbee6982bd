// What the ranks of PyTorch's own parallelism send each other in one step, as far as nothing hides it: DistributedDataParallel, ZeRO-1,
// fully_shard, FSDP1, tensor parallelism, and DeepSpeed's ZeRO. Megatron's is in megatron_time.h.
#pragma once

#include "job/job.h"
#include "plan/links.h"
#include "plan/step_time.h"
#include "step/train.h"

namespace plimsoll {

// Seconds. `t` has the times of the kernels.
double communication_seconds(const Job& job, const Simulation& simulation, const StepTime& t, const Links& links);

}  // namespace plimsoll
