// Devices of the kernel's own drivers, again and again: the files of /sys and each process's /proc/<pid>/fdinfo.
#include <algorithm>
#include <set>

#include "hardware/meters.h"
#include "hardware/sources.h"

namespace plimsoll {

namespace {

// Reading the descriptors of every process takes as long as a step may; those of the processes that matter are read each time.
constexpr int kReadsBetweenScans = 15;

class DrmMeter : public DeviceMeter {
 public:
  explicit DrmMeter(const Surroundings& s) : s_(s) {}

  void read(const std::vector<DetectedDevice>& devices, const std::vector<int64_t>& pids, std::vector<DeviceReading>& out) override {
    Machine m;
    m.devices = devices;
    for (DetectedDevice& d : m.devices) d.processes.clear();
    std::set<std::string> look;
    for (const int64_t pid : pids) look.insert(std::to_string(pid));
    if (reads_++ % kReadsBetweenScans == 0) {
      others_.clear();
      for (const std::string& name : s_.list("/proc"))
        if (whole_number(name)) look.insert(name);
      for (const std::string& pid : look) {
        const size_t before = processes(m);
        read_fdinfo(s_, m, pid);
        if (processes(m) > before) others_.insert(pid);
      }
    } else {
      look.insert(others_.begin(), others_.end());
      for (const std::string& pid : look) read_fdinfo(s_, m, pid);
    }
    for (size_t i = 0; i < devices.size(); ++i)
      if (devices[i].vendor == "AMD" || devices[i].vendor == "Intel") fill(devices[i], m.devices[i], out[i]);
  }

 private:
  static size_t processes(const Machine& m) {
    size_t n = 0;
    for (const DetectedDevice& d : m.devices) n += d.processes.size();
    return n;
  }

  void fill(const DetectedDevice& d, const DetectedDevice& seen, DeviceReading& out) const {
    const std::string folder = "/sys/bus/pci/devices/" + d.pci;
    if (const auto used = s_.read_number(folder + "/mem_info_vram_used"); used && !out.used && *used >= 0) out.used = Bytes{*used};
    if (const auto busy = s_.read_number(folder + "/gpu_busy_percent"); busy && !out.busy && *busy >= 0 && *busy <= 100)
      out.busy = static_cast<double>(*busy) / 100;
    for (const DeviceProcess& p : seen.processes) {
      const auto known = std::find_if(out.processes.begin(), out.processes.end(), [&](const DeviceProcess& o) { return o.pid == p.pid; });
      if (known == out.processes.end())
        out.processes.push_back(p);
      else if (!known->used)
        known->used = p.used;
    }
    out.answers |= out.used || out.busy || !out.processes.empty() || s_.exists(folder);
  }

  Surroundings s_;
  int reads_ = 0;
  std::set<std::string> others_;  // processes that had memory on a device when all were read
};

}  // namespace

std::unique_ptr<DeviceMeter> drm_meter(const Surroundings& s, const std::vector<DetectedDevice>& devices) {
  const auto served = [](const DetectedDevice& d) { return !d.pci.empty() && (d.vendor == "AMD" || d.vendor == "Intel"); };
  if (std::none_of(devices.begin(), devices.end(), served)) return nullptr;
  return std::make_unique<DrmMeter>(s);
}

}  // namespace plimsoll
