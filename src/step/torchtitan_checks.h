// What torchtitan refuses, or has and is not simulated.
#pragma once

#include "job/job.h"

namespace plimsoll {

// Settings that torchtitan has not, with the nearest that it has.
void check_torchtitan(const Job& job, Problems& out);
// Into how many the local batch goes. Unless it is said: as many as stages, and since 2025-04 (pull 1073) one a sample.
int64_t torchtitan_micro_batches(const Job& job);

}  // namespace plimsoll
