// --gpu, --gpus and --in-use: which devices a run is asked to fit.
#pragma once

#include <CLI/CLI.hpp>

#include "api/request.h"

namespace plimsoll {

struct DeviceFlags : DeviceRequest {
  void add_to(CLI::App& app);
};

}  // namespace plimsoll
