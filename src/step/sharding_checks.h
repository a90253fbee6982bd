// Jobs that fully_shard or tensor parallelism would refuse, or that are not simulated with them.
#pragma once

#include "job/job.h"
#include "model/family.h"

namespace plimsoll {

// Their hints say what to leave out or what to take instead.
void check_fsdp(const Job& job, Problems& out);
void check_tensor_parallel(const Job& job, const ModelEntry& model, Problems& out);

}  // namespace plimsoll
