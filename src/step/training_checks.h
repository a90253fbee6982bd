// What a loop on PyTorch refuses of a job, or is not simulated with, as far as the settings tell: ddp.h, fsdp.h and the others beside it
// have rules of their own. torchtitan_checks.h and megatron_step.h have those of their programs.
#pragma once

#include "job/job.h"

namespace plimsoll {

void check_training(const Job& job, Problems& out);

}  // namespace plimsoll
