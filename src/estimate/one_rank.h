// An estimate of the rank that the job asks about, and of no other: estimate() takes the largest of all where that is rank 0.
#pragma once

#include "estimate/estimate.h"

namespace plimsoll {

Estimate estimate_one_rank(const Job& job, size_t top_tensors, const std::optional<DeviceSpec>& device);

}  // namespace plimsoll
