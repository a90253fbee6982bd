// torch.compile is not executed but enclosed. The upper end is the eager run, which keeps every intermediate. The lower end keeps
// what matrix products, convolutions and attention return and makes the rest again, block by block: Inductor's partitioner
// recomputes what is cheap and fused, never a matrix product. The estimate is the middle of the two.
#pragma once

#include <functional>

#include "estimate/device_memory.h"
#include "job/job.h"

namespace plimsoll {

// The run at the lower end. None when the job is not compiled, or checkpoints already.
std::optional<Job> fused_job(const Job& job);

// `fused` is how the lower end is found; what it refuses, because the model is no sequence of blocks, is refused for the compiled run.
DeviceMemory compiled_memory(const Job& job, const DeviceMemory& eager, const std::function<DeviceMemory(const Job&)>& fused);

// Midway, with the interval of both.
DeviceMemory between(const DeviceMemory& fused, const DeviceMemory& eager);

}  // namespace plimsoll
