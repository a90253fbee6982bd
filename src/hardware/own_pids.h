// Pids as drivers tell them: in a container those of the host, which are nobody's here.
#pragma once

#include "hardware/meters.h"

namespace plimsoll {

// Processes of `readings` that do not exist here are taken for those of `pids` that have a device open, when there are as many of the one
// as of the other: in the order of their numbers, as both are given out one after the other. Else they stay as they are.
void take_for_own(const Surroundings& s, const std::vector<int64_t>& pids, std::vector<DeviceReading>& readings);

}  // namespace plimsoll
