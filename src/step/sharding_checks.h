// Jobs that fully_shard or tensor parallelism would refuse, or that are not simulated with them.
#pragma once

#include "job/job.h"
#include "model/family.h"

namespace plimsoll {

// Both throw an Error that says what to leave out or what to take instead.
void check_fsdp(const Job& job);
void check_tensor_parallel(const Job& job, const ModelEntry& model);

}  // namespace plimsoll
