// Which processes use devices of the kernel's own drivers, and how much: /proc/<pid>/fdinfo (kernel documentation: drm-usage-stats).
#include <algorithm>
#include <set>

#include "hardware/sources.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr size_t kMostFiles = 4096;  // of one process

bool is_number(const std::string& text) { return !text.empty() && std::all_of(text.begin(), text.end(), ::isdigit); }

// "drm-memory-vram:\t2048 KiB" (amdgpu), "drm-resident-vram0:\t12 MiB" (xe, i915: local0).
std::optional<Bytes> device_bytes(const std::map<std::string, std::string>& values) {
  for (const char* key : {"drm-memory-vram", "drm-resident-vram0", "drm-resident-local0"}) {
    const auto found = values.find(key);
    if (found == values.end()) continue;
    const size_t blank = found->second.find(' ');
    const auto number = whole_number(found->second.substr(0, blank));
    const std::string unit = blank == std::string::npos ? "" : found->second.substr(blank + 1);
    const int64_t scale = unit == "KiB" ? 1 << 10 : unit == "MiB" ? 1 << 20 : 1;
    if (!number || *number < 0 || *number > INT64_MAX / scale) return std::nullopt;
    return Bytes{*number * scale};
  }
  return std::nullopt;
}

void add(DetectedDevice& d, int64_t pid, Bytes used) {
  for (DeviceProcess& p : d.processes)
    if (p.pid == pid) {
      if (p.used) *p.used += used;
      return;
    }
  d.processes.push_back({pid, used});
}

}  // namespace

void read_fdinfo(const Surroundings& s, Machine& m, const std::string& pid) {
  const std::string folder = "/proc/" + pid + "/fdinfo";
  std::set<std::pair<std::string, std::string>> seen;  // one client may have several descriptors
  std::vector<std::string> files = s.list(folder);
  files.resize(std::min(files.size(), kMostFiles));
  for (const std::string& fd : files) {
    const auto text = s.read(folder + "/" + fd);
    if (!text || text->find("drm-pdev") == std::string::npos) continue;
    const auto values = key_values(*text, ':');
    const auto place = values.find("drm-pdev"), client = values.find("drm-client-id");
    const auto used = device_bytes(values);
    if (place == values.end() || !used || used->count == 0) continue;
    if (client != values.end() && !seen.emplace(place->second, client->second).second) continue;
    if (DetectedDevice* d = device_at(m, lower(place->second))) add(*d, whole_number(pid).value_or(0), *used);
  }
}

void probe_fdinfo(const Surroundings& s, Machine& m) {
  // NVIDIA's driver tells through NVML instead.
  const bool any =
      std::any_of(m.devices.begin(), m.devices.end(), [](const DetectedDevice& d) { return d.vendor == "AMD" || d.vendor == "Intel"; });
  if (!any) return;
  for (const std::string& pid : s.list("/proc"))
    if (is_number(pid)) read_fdinfo(s, m, pid);
  for (const DetectedDevice& d : m.devices)
    for (const DeviceProcess& p : d.processes)
      if (d.vendor != "NVIDIA" && p.used) m.saw("fdinfo", d.pci + " process " + std::to_string(p.pid), std::to_string(p.used->count));
}

}  // namespace plimsoll
