// The host's memory: /proc/meminfo, the limits of control groups (v1 and v2), /dev/shm.
#include <algorithm>
#include <filesystem>

#include "hardware/sources.h"

namespace plimsoll {

namespace {

// "   24681512 kB"; the kernel's kB are KiB.
std::optional<Bytes> kilobytes(const std::map<std::string, std::string>& meminfo, const char* key) {
  const auto found = meminfo.find(key);
  if (found == meminfo.end() || !found->second.ends_with(" kB")) return std::nullopt;
  const auto number = whole_number(found->second.substr(0, found->second.size() - 3));
  if (!number || *number < 0 || *number > INT64_MAX / 1024) return std::nullopt;
  return Bytes{*number * 1024};
}

void read_meminfo(const Surroundings& s, Machine& m) {
  const auto text = s.read("/proc/meminfo");
  if (!text) {
    m.saw("/proc/meminfo", "", "cannot be read");
    return;
  }
  const auto values = key_values(*text, ':');
  for (const char* key : {"MemTotal", "MemFree", "MemAvailable", "Cached", "SwapTotal", "SwapFree", "HugePages_Total"})
    if (const auto found = values.find(key); found != values.end()) m.saw("/proc/meminfo", key, printable(found->second));
  m.host.total = kilobytes(values, "MemTotal");
  m.host.available = kilobytes(values, "MemAvailable");
  m.host.swap = kilobytes(values, "SwapTotal");
}

// Where one version of control groups keeps its figures.
struct Layout {
  std::string mount, limit, used;
};

// v1 writes "no limit" as the largest multiple of the page size below 2^63, v2 as "max".
constexpr int64_t kNoLimitV1 = INT64_MAX / 4096 * 4096;

void read_group(const Surroundings& s, Machine& m, const Layout& layout, const std::string& folder) {
  const std::string file = layout.mount + folder + "/" + layout.limit;
  const auto text = s.read(file);
  if (!text) return;
  m.saw(file, "", printable(*text));
  const auto limit = whole_number(*text);
  if (!limit || *limit <= 0 || *limit >= kNoLimitV1) return;
  if (m.host.limit && m.host.limit->count <= *limit) return;
  m.host.limit = Bytes{*limit};
  m.host.limit_source = file;
  const auto used = s.read_number(layout.mount + folder + "/" + layout.used);
  m.host.limit_used = used && *used >= 0 ? std::optional(Bytes{*used}) : std::nullopt;
  if (used) m.saw(layout.mount + folder + "/" + layout.used, "", std::to_string(*used));
}

// A limit anywhere above the process holds, so every group up to the mount is read. In a container's own namespace the path of
// /proc/self/cgroup may not exist below the mount; the mount itself is then the container's group.
void read_groups_above(const Surroundings& s, Machine& m, const Layout& layout, std::string path) {
  if (path.find("..") != std::string::npos) path = "/";
  while (path.size() > 1) {
    read_group(s, m, layout, path);
    path.erase(path.find_last_of('/'));
  }
  read_group(s, m, layout, "");
}

void read_control_groups(const Surroundings& s, Machine& m) {
  const auto text = s.read("/proc/self/cgroup");
  if (!text) return;
  // "0::/path" is v2; "4:memory:/path" is the memory controller of v1.
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const std::string line = text->substr(begin, end - begin);
    begin = end + 1;
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", path = line.substr(second + 1);
    if (line.starts_with("0::")) {
      // Beside v1, systemd mounts v2 at .../unified.
      read_groups_above(
          s, m, {s.exists("/sys/fs/cgroup/unified") ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup", "memory.max", "memory.current"}, path);
    } else if (controllers.find(",memory,") != std::string::npos) {
      m.saw("/proc/self/cgroup", "", printable(line));
      read_groups_above(s, m, {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"}, path);
    }
  }
}

void read_shm(const Surroundings& s, Machine& m) {
  std::error_code error;
  const auto space = std::filesystem::space(s.root + "/dev/shm", error);
  if (error || space.capacity == 0 || space.capacity > static_cast<uint64_t>(INT64_MAX)) return;
  m.host.shm = Bytes{static_cast<int64_t>(space.capacity)};
  m.saw("/dev/shm", "capacity", std::to_string(space.capacity));
}

}  // namespace

void probe_host_memory(const Surroundings& s, Machine& m) {
  read_meminfo(s, m);
  read_control_groups(s, m);
  read_shm(s, m);
}

std::optional<Bytes> HostMemory::usable_total() const {
  if (total && limit) return std::min(*total, *limit);
  return total ? total : limit;
}

std::optional<Bytes> HostMemory::usable_now() const {
  std::optional<Bytes> left;
  if (limit && limit_used) left = std::max(Bytes{0}, *limit - *limit_used);
  if (available && left) return std::min(*available, *left);
  return available ? available : left;
}

}  // namespace plimsoll
