// The host's memory: /proc/meminfo, the limits of control groups (v1 and v2), /dev/shm.
#include <algorithm>
#include <filesystem>

#include "hardware/control_groups.h"
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

// A limit anywhere above the process holds, so every group up to the mount is read.
void read_control_groups(const Surroundings& s, Machine& m) {
  for (const ControlGroup& group : control_groups(s, "self")) {
    const auto text = s.read(group.limit_file());
    if (!text) continue;
    m.saw(group.limit_file(), "", printable(*text));
    const auto limit = group.limit(s);
    if (!limit || (m.host.limit && *m.host.limit <= *limit)) continue;
    m.host.limit = limit;
    m.host.limit_source = group.limit_file();
    m.host.limit_used = group.used(s);
    if (m.host.limit_used) m.saw(group.used_file(), "", std::to_string(m.host.limit_used->count));
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
