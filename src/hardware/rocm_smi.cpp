// AMD devices from ROCm's management library.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hardware/rocm_smi_library.h"
#include "hardware/sources.h"

namespace plimsoll {

namespace {

constexpr uint32_t kMostRocmDevices = 128;  // MI250 and MI300 in partitions show up as several

std::string name_of(RocmSmi& api, const std::string& who, uint32_t i) {
  for (const char* function : {"rsmi_dev_market_name_get", "rsmi_dev_name_get"}) {
    std::array<char, 257> buffer{};
    if (function == std::string("rsmi_dev_market_name_get")) {
      if (!api.call<uint32_t, char*, uint32_t>(who, function, i, buffer.data(), 256)) continue;
    } else if (!api.call<uint32_t, char*, size_t>(who, function, i, buffer.data(), 256)) {
      continue;
    }
    if (buffer[0]) return printable(buffer.data());
  }
  return "";
}

std::optional<Bytes> memory(RocmSmi& api, Machine& m, const std::string& who, const char* function, uint32_t i, rocm_smi::MemoryType type) {
  uint64_t bytes = 0;
  if (!api.call<uint32_t, int, uint64_t*>(who, function, i, type, &bytes)) return std::nullopt;
  m.saw("rocm-smi", fmt::format("{}{} {}", who, function, type == rocm_smi::kVram ? "VRAM" : "GTT"), std::to_string(bytes));
  return plausible(bytes);
}

DetectedDevice read_device(RocmSmi& api, Machine& m, uint32_t i) {
  const std::string who = fmt::format("gpu {}: ", i);
  DetectedDevice d;
  d.vendor = "AMD";
  d.source = "rocm-smi";
  d.index = static_cast<int>(i);
  d.name = name_of(api, who, i);
  m.saw("rocm-smi", who + "name", d.name);
  uint64_t id = 0, place = 0, version = 0;
  // ROCR_VISIBLE_DEVICES takes "GPU-" and this number.
  if (api.call<uint32_t, uint64_t*>(who, "rsmi_dev_unique_id_get", i, &id)) d.uuid = fmt::format("GPU-{:016x}", id);
  // Domain in the high half, then bus, device and function.
  if (api.call<uint32_t, uint64_t*>(who, "rsmi_dev_pci_id_get", i, &place))
    d.pci = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", place >> 32, place >> 8 & 0xff, place >> 3 & 0x1f, place & 7);
  // Shown only: its encoding differs between releases. The target itself comes from /sys/class/kfd.
  if (api.call<uint32_t, uint64_t*>(who, "rsmi_dev_target_graphics_version_get", i, &version))
    m.saw("rocm-smi", who + "target graphics version", std::to_string(version));
  d.total = memory(api, m, who, "rsmi_dev_memory_total_get", i, rocm_smi::kVram);
  d.shared_total = memory(api, m, who, "rsmi_dev_memory_total_get", i, rocm_smi::kGtt);
  d.used = memory(api, m, who, "rsmi_dev_memory_usage_get", i, rocm_smi::kVram);
  if (d.total && d.used && *d.used > *d.total) d.used = std::nullopt;
  for (const DeviceProcess& p : rocm_smi_processes(api, i)) d.processes.push_back(p);
  if (!d.total) m.blockers.push_back(who + "ROCm gives no usable figure for its memory");
  return d;
}

}  // namespace

void probe_rocm_smi(const Surroundings& s, Machine& m) {
  if (!s.exists(rocm_smi::kDriver)) {  // without it the library complains on stderr
    m.saw("rocm-smi", rocm_smi::kDriver, "not there: no amdgpu driver");
    return;
  }
  RocmSmi api(s.rocm_smi, [&m](std::string what, std::string value) { m.saw("rocm-smi", std::move(what), std::move(value)); });
  if (!api.start()) return;
  uint32_t count = 0;
  if (!api.call<uint32_t*>("", "rsmi_num_monitor_devices", &count)) return;
  m.saw("rocm-smi", "devices", std::to_string(count));
  if (count > kMostRocmDevices)
    m.blockers.push_back(fmt::format("rocm-smi: the driver claims {} devices; only the first {} are asked", count, kMostRocmDevices));
  for (uint32_t i = 0; i < std::min(count, kMostRocmDevices); ++i) m.devices.push_back(read_device(api, m, i));
}

}  // namespace plimsoll
