#include "hardware/control_groups.h"

#include "util/text.h"

namespace plimsoll {

namespace {

// v1 writes "no limit" as the largest multiple of the page size below 2^63, v2 as "max".
constexpr int64_t kNoLimitV1 = INT64_MAX / 4096 * 4096;

void add_groups_above(std::vector<ControlGroup>& out, const std::string& mount, std::string path, bool v2) {
  if (path.find("..") != std::string::npos) path = "/";
  while (path.size() > 1) {
    out.push_back({mount + path, v2});
    path.erase(path.find_last_of('/'));
  }
  out.push_back({mount, v2});
}

}  // namespace

std::optional<Bytes> ControlGroup::limit(const Surroundings& s) const {
  const auto number = s.read_number(limit_file());
  return !number || *number <= 0 || *number >= kNoLimitV1 ? std::nullopt : std::optional(Bytes{*number});
}

std::optional<Bytes> ControlGroup::used(const Surroundings& s) const {
  const auto number = s.read_number(used_file());
  return number && *number >= 0 ? std::optional(Bytes{*number}) : std::nullopt;
}

std::vector<ControlGroup> control_groups(const Surroundings& s, const std::string& process) {
  std::vector<ControlGroup> out;
  // "0::/path" is v2; "4:memory:/path" is the memory controller of v1.
  for (const std::string& line : split_at(s.read("/proc/" + process + "/cgroup").value_or(""), '\n')) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", path = line.substr(second + 1);
    // Beside v1, systemd mounts v2 at .../unified.
    if (line.starts_with("0::"))
      add_groups_above(out, s.exists("/sys/fs/cgroup/unified") ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup", path, true);
    else if (controllers.find(",memory,") != std::string::npos)
      add_groups_above(out, "/sys/fs/cgroup/memory", path, false);
  }
  return out;
}

}  // namespace plimsoll
