// --gpu, --gpus and --in-use: which devices a run is asked to fit.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "estimate/fit.h"

namespace plimsoll {

struct DeviceFlags {
  std::vector<std::string> names;
  std::string group, in_use;

  void add_to(CLI::App& app);
  bool any() const { return !names.empty() || !group.empty(); }
  // Empty when none was asked for. Throws an Error for a name that fits no device, and when this machine has none.
  std::vector<TargetDevice> devices() const;
};

// 0 when one of them fits, 4 when at best it is tight, 3 when none does; 0 without devices or when nothing is known.
ExitCode exit_code_of(const std::vector<Fit>& fits);

}  // namespace plimsoll
