// Which devices a process started from here would see: CUDA_VISIBLE_DEVICES and its relatives.
#pragma once

#include "hardware/machine.h"
#include "hardware/surroundings.h"

namespace plimsoll {

// Sets `visible` of every device and says in conclusions and blockers what the variables do.
void apply_visibility(const Surroundings& s, Machine& m);

}  // namespace plimsoll
