// --gpu, --gpus and --in-use: which devices a run is asked to fit.
#pragma once

#include <CLI/CLI.hpp>

#include "api/request.h"

namespace plimsoll {

struct DeviceFlags : DeviceRequest {
  bool counted = false;  // whether the command makes use of "8xh100"

  // What is taken for a name that is none of the catalogue is said on stderr once all flags are parsed.
  void add_to(CLI::App& app);
};

}  // namespace plimsoll
