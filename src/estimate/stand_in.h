// The interval of a run of which something is not known before it runs. Of an architecture that is not known, what its weights decide is
// exact, and activations are a range around the stand-in that was simulated (model/weights_only.h). Of experts under Megatron-LM it is how
// many tokens the router sends to this rank: equal shares were simulated. Of a captured program it is how many elements its data leaves.
#pragma once

#include "estimate/device_memory.h"
#include "job/job.h"

namespace plimsoll {

// `memory` itself for any other run.
DeviceMemory with_stand_in_range(const Job& job, const Trace& trace, const DeviceMemory& memory);

}  // namespace plimsoll
