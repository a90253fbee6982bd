// This machine: its devices as a framework will see them and its memory as a process will get it.
#pragma once

#include "hardware/machine.h"
#include "hardware/surroundings.h"

namespace plimsoll {

// Never throws for what the machine says; what is missing or contradictory is a blocker.
Machine detect(const Surroundings& surroundings);

}  // namespace plimsoll
