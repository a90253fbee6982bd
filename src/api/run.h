// A supervised run: what `plimsoll run` does between its flags and the supervisor. What can be simulated is: the first estimate, and the
// size that fits after an out-of-memory.
#pragma once

#include "api/request.h"
#include "supervise/supervisor.h"

namespace plimsoll {

struct RunRequest {
  SupervisorRequest supervisor;
  DeviceRequest devices;   // none: those of this machine
  bool dry = false;        // only say what would be done
  bool json = false;       // of a dry run
  bool calibrated = true;  // estimates use what was measured of like runs on this machine
};

// What the process exits with. `print` gets the answer of a dry run; what is said meanwhile goes to the supervisor's `say`.
int answer(const RunRequest& request, const std::function<void(const std::string&)>& print);

}  // namespace plimsoll
