// The control groups that a process is in, of either version: where their limits and figures are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hardware/surroundings.h"
#include "util/bytes.h"

namespace plimsoll {

struct ControlGroup {
  std::string folder;
  bool v2 = true;

  std::string limit_file() const { return folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"); }
  std::string used_file() const { return folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"); }
  std::optional<Bytes> limit(const Surroundings& s) const;  // none: it has none, or does not say
  std::optional<Bytes> used(const Surroundings& s) const;
};

// From the process's own group up to the mount. `process`: a pid, or "self". In a container's own namespace the path of
// /proc/<process>/cgroup may not exist below the mount; the mount itself is then the container's group.
std::vector<ControlGroup> control_groups(const Surroundings& s, const std::string& process);

}  // namespace plimsoll
