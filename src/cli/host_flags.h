// The flags of `estimate` that say which machine: its RAM, its /dev/shm, or one pool for device and host.
#pragma once

#include <CLI/CLI.hpp>

#include "api/host_request.h"

namespace plimsoll {

struct HostFlags : HostRequest {
  void add_to(CLI::App& app);
};

}  // namespace plimsoll
