// The interval of a run whose architecture is not known: what its weights decide is exact, activations are a range around the stand-in
// that was simulated (model/weights_only.h).
#pragma once

#include "estimate/device_memory.h"
#include "job/job.h"

namespace plimsoll {

// `memory` itself for any other model.
DeviceMemory with_stand_in_range(const Job& job, const Trace& trace, const DeviceMemory& memory);

}  // namespace plimsoll
