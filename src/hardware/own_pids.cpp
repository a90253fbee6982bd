#include "hardware/own_pids.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace plimsoll {

namespace {

// "/dev/nvidia0", not "/dev/nvidiactl".
bool is_device_node(const std::string& path) {
  constexpr std::string_view kBegin = "/dev/nvidia";
  return path.starts_with(kBegin) && path.size() > kBegin.size() && path[kBegin.size()] >= '0' && path[kBegin.size()] <= '9';
}

bool has_device_open(const Surroundings& s, int64_t pid) {
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  for (const std::string& fd : s.list(folder)) {
    std::error_code error;
    if (is_device_node(std::filesystem::read_symlink(s.root + folder + "/" + fd, error).string())) return true;
  }
  return false;
}

}  // namespace

void take_for_own(const Surroundings& s, const std::vector<int64_t>& pids, std::vector<DeviceReading>& readings) {
  std::set<int64_t> strangers, users;
  for (const DeviceReading& r : readings)
    for (const DeviceProcess& p : r.processes)
      if (std::find(pids.begin(), pids.end(), p.pid) == pids.end() && !s.exists(fmt::format("/proc/{}", p.pid))) strangers.insert(p.pid);
  if (strangers.empty()) return;
  for (const int64_t pid : pids)
    if (has_device_open(s, pid)) users.insert(pid);
  if (users.size() != strangers.size()) return;
  std::map<int64_t, int64_t> own;
  for (auto a = strangers.begin(), b = users.begin(); a != strangers.end(); ++a, ++b) own[*a] = *b;
  for (DeviceReading& r : readings)
    for (DeviceProcess& p : r.processes)
      if (const auto known = own.find(p.pid); known != own.end()) p.pid = known->second;
}

}  // namespace plimsoll
