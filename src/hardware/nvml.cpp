// NVIDIA devices, their memory, MIG slices and processes, from the driver's management library.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hardware/nvml_library.h"
#include "hardware/sources.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using namespace nvml;

// No machine has more; a driver that says so is broken, and asking for each would hang.
constexpr unsigned kMostDevices = 64, kMostSlices = 16;

std::string text_of(Nvml& api, const std::string& who, const char* name, Device device) {
  std::array<char, kNameSize + 1> buffer{};  // one more than the driver is told: always terminated
  if (api.call(who, name, kText, device, buffer.data(), kNameSize) != kSuccess) return "";
  return buffer.data();
}

void read_memory(Nvml& api, Machine& m, const std::string& who, Device device, DetectedDevice& d) {
  MemoryV2 v2{kMemoryV2, 0, 0, 0, 0};
  if (api.call(who, "nvmlDeviceGetMemoryInfo_v2", kMemoryOfV2, device, &v2) == kSuccess) {
    m.saw("nvml", who + "memory", fmt::format("total {} reserved {} used {} free {}", v2.total, v2.reserved, v2.used, v2.free));
    d.total = plausible(v2.total);
    if (v2.reserved < v2.total) d.reserved = Bytes{static_cast<int64_t>(v2.reserved)};
    if (v2.used <= v2.total) d.used = Bytes{static_cast<int64_t>(v2.used)};
  } else if (Memory v1{}; api.call(who, "nvmlDeviceGetMemoryInfo", kMemory, device, &v1) == kSuccess) {
    m.saw("nvml", who + "memory (v1)", fmt::format("total {} used {} free {}", v1.total, v1.used, v1.free));
    d.total = plausible(v1.total);
    if (v1.used <= v1.total) d.used = Bytes{static_cast<int64_t>(v1.used)};
  } else {
    m.saw("nvml", who + "memory", "N/A");
    return;
  }
  if (d.total) return;
  d.reserved = d.used = std::nullopt;
  m.blockers.push_back(who + "the driver's memory figures are impossible and not used");
}

DetectedDevice read_device(Nvml& api, Machine& m, const std::string& who, Device device) {
  DetectedDevice d;
  d.vendor = "NVIDIA";
  d.source = "nvml";
  d.name = printable(text_of(api, who, "nvmlDeviceGetName", device));
  d.uuid = printable(text_of(api, who, "nvmlDeviceGetUUID", device));
  m.saw("nvml", who + "name", d.name);
  m.saw("nvml", who + "uuid", d.uuid);
  read_memory(api, m, who, device, d);
  d.processes = nvml_processes(api, who, device, d.total);
  return d;
}

void read_place(Nvml& api, Machine& m, const std::string& who, Device device, DetectedDevice& d) {
  Pci pci{};
  if (api.call(who, "nvmlDeviceGetPciInfo_v3", kPci, device, &pci) == kSuccess) {
    // NVML prints the domain with eight digits, the kernel with four.
    d.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
    m.saw("nvml", who + "pci", fmt::format("{} device {:08x} subsystem {:08x}", d.pci, pci.device_id, pci.subsystem_id));
  }
  int major = 0, minor = 0;
  if (api.call(who, "nvmlDeviceGetCudaComputeCapability", kCapability, device, &major, &minor) == kSuccess && major > 0 && major < 100 &&
      minor >= 0 && minor < 100) {
    d.target = fmt::format("{}.{}", major, minor);
    m.saw("nvml", who + "compute capability", d.target);
  }
  unsigned ecc = 0, pending = 0;
  if (api.call(who, "nvmlDeviceGetEccMode", kMode, device, &ecc, &pending) == kSuccess) m.saw("nvml", who + "ECC", ecc ? "on" : "off");
}

void read_slices(Nvml& api, Machine& m, const std::string& who, Device device, size_t parent) {
  unsigned mode = 0, pending = 0, most = 0;
  if (api.call(who, "nvmlDeviceGetMigMode", kMode, device, &mode, &pending) != kSuccess) return;
  m.saw("nvml", who + "MIG", mode == 1 ? "on" : "off");
  if (mode != 1) return;
  m.devices[parent].split = true;
  if (api.call(who, "nvmlDeviceGetMaxMigDeviceCount", kOfDevice, device, &most) != kSuccess) return;
  for (unsigned i = 0; i < std::min(most, kMostSlices); ++i) {
    Device slice = nullptr;
    // Slots that hold no slice answer "not found".
    if (api.call(who, "nvmlDeviceGetMigDeviceHandleByIndex", kSlice, device, i, &slice) != kSuccess || !slice) continue;
    DetectedDevice d = read_device(api, m, fmt::format("{}slice {}: ", who, i), slice);
    d.parent_uuid = m.devices[parent].uuid;
    d.pci = m.devices[parent].pci;
    d.target = m.devices[parent].target;
    d.index = static_cast<int>(i);
    m.devices.push_back(std::move(d));
  }
}

void read_driver(Nvml& api, Machine& m) {
  std::array<char, kNameSize + 1> buffer{};
  int (*const version)(char*, unsigned) = nullptr;
  if (api.call("", "nvmlSystemGetDriverVersion", version, buffer.data(), kNameSize) == kSuccess) m.nvidia_driver = printable(buffer.data());
  m.saw("nvml", "driver", m.nvidia_driver);
  int cuda = 0;
  int (*const number)(int*) = nullptr;
  if (api.call("", "nvmlSystemGetCudaDriverVersion_v2", number, &cuda) == kSuccess)
    m.saw("nvml", "newest CUDA the driver supports", fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10));
}

}  // namespace

void probe_nvml(const Surroundings& s, Machine& m) {
  Nvml api(s.nvml, [&m](std::string what, std::string value) { m.saw("nvml", std::move(what), std::move(value)); });
  if (!api.start()) {
    if (!api.problem().empty()) m.blockers.push_back("nvml: " + api.problem());
    return;
  }
  read_driver(api, m);
  unsigned count = 0;
  if (api.call("", "nvmlDeviceGetCount_v2", kCount, &count) != kSuccess) {
    m.blockers.push_back("nvml: the driver does not say how many devices there are");
    return;
  }
  m.saw("nvml", "devices", std::to_string(count));
  if (count > kMostDevices) {
    m.blockers.push_back(fmt::format("nvml: the driver claims {} devices; only the first {} are asked", count, kMostDevices));
    count = kMostDevices;
  }
  for (unsigned i = 0; i < count; ++i) {
    const std::string who = fmt::format("gpu {}: ", i);
    Device device = nullptr;
    const int code = api.call(who, "nvmlDeviceGetHandleByIndex_v2", kByIndex, i, &device);
    if (code != kSuccess || !device) {
      m.blockers.push_back(who + "the driver lists it but does not open it: " + (code < 0 ? "function missing" : api.text(code)));
      continue;
    }
    DetectedDevice d = read_device(api, m, who, device);
    read_place(api, m, who, device, d);
    d.index = static_cast<int>(i);
    m.devices.push_back(std::move(d));
    read_slices(api, m, who, device, m.devices.size() - 1);
  }
}

}  // namespace plimsoll
