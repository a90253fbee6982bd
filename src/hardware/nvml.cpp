// NVIDIA devices, their memory, MIG slices and processes, from the driver's management library.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hardware/nvml_api.h"
#include "hardware/shared_library.h"
#include "hardware/sources.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using namespace nvml;

// No machine has more; a driver that says so is broken, and asking for each would hang.
constexpr unsigned kMostDevices = 64, kMostSlices = 16, kMostProcesses = 1024;

// The library between nvmlInit and nvmlShutdown.
class Nvml {
 public:
  Nvml(const std::vector<std::string>& names, Machine& m) : lib_(names), m_(m) {}
  ~Nvml() {
    if (auto shutdown = lib_.get<int()>("nvmlShutdown"); started_ && shutdown) shutdown();
  }

  bool start() {
    if (!lib_) {
      m_.saw("nvml", "library", printable(lib_.error()));
      return false;
    }
    m_.saw("nvml", "library", lib_.name());
    auto init = lib_.get<int()>("nvmlInit_v2");
    if (!init) {
      m_.blockers.push_back("nvml: " + lib_.name() + " has no nvmlInit_v2: it is no NVIDIA driver library, or one from before 2013");
      return false;
    }
    const int code = init();
    m_.saw("nvml", "nvmlInit_v2", text(code));
    started_ = code == kSuccess;
    if (!started_) m_.blockers.push_back("nvml: the driver does not start: " + text(code) + init_hint(code));
    return started_;
  }

  // Calls a function when the library has it; every answer but success is what the driver is seen to say.
  template <class... Parameters, class... Arguments>
  int call(const std::string& who, const char* name, int (*)(Parameters...), Arguments... arguments) {
    auto f = lib_.get<int(Parameters...)>(name);
    if (!f) return kNoFunction;
    const int code = f(arguments...);
    if (code != kSuccess) m_.saw("nvml", who + name, text(code));
    return code;
  }

  std::string text(int code) const {
    if (code == kSuccess) return "success";
    auto name = lib_.get<const char*(int)>("nvmlErrorString");
    const char* words = name ? name(code) : nullptr;
    return fmt::format("error {}{}", code, words ? " (" + printable(words) + ")" : "");
  }

  static constexpr int kNoFunction = -1;

 private:
  // NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIB_RM_VERSION_MISMATCH.
  static std::string init_hint(int code) {
    if (code == 9) return "; load the nvidia kernel module, or give the container the device (--gpus all)";
    if (code == 18) return "; the driver was updated under a running kernel module: reboot";
    return "";
  }

  SharedLibrary lib_;
  Machine& m_;
  bool started_ = false;
};

// Signatures, so that a call names function and types together.
int (*const kText)(Device, char*, unsigned) = nullptr;
int (*const kCount)(unsigned*) = nullptr;
int (*const kByIndex)(unsigned, Device*) = nullptr;
int (*const kOfDevice)(Device, unsigned*) = nullptr;
int (*const kMode)(Device, unsigned*, unsigned*) = nullptr;
int (*const kCapability)(Device, int*, int*) = nullptr;
int (*const kSlice)(Device, unsigned, Device*) = nullptr;
int (*const kMemory)(Device, Memory*) = nullptr;
int (*const kMemoryOfV2)(Device, MemoryV2*) = nullptr;
int (*const kPci)(Device, Pci*) = nullptr;
int (*const kProcesses)(Device, unsigned*, Process*) = nullptr;

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

void read_processes(Nvml& api, const std::string& who, Device device, DetectedDevice& d) {
  std::vector<Process> list(kMostProcesses);
  unsigned count = kMostProcesses;
  if (api.call(who, "nvmlDeviceGetComputeRunningProcesses_v3", kProcesses, device, &count, list.data()) != kSuccess) return;
  for (unsigned i = 0; i < std::min(count, kMostProcesses); ++i) {
    const Process& p = list[i];
    const bool known = p.used != kUsedNotAvailable && d.total && p.used <= static_cast<uint64_t>(d.total->count);
    d.processes.push_back({p.pid, known ? std::optional(Bytes{static_cast<int64_t>(p.used)}) : std::nullopt});
  }
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
  read_processes(api, who, device, d);
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
  Nvml api(s.nvml, m);
  if (!api.start()) return;
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
