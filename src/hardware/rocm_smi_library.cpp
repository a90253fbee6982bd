#include "hardware/rocm_smi_library.h"

#include <algorithm>

#include "hardware/sources.h"

namespace plimsoll {

RocmSmi::~RocmSmi() {
  if (auto stop = lib_.get<int()>("rsmi_shut_down"); started_ && stop) stop();
}

bool RocmSmi::start() {
  saw_("library", lib_ ? lib_.name() : printable(lib_.error()));
  auto init = lib_.get<int(uint64_t)>("rsmi_init");
  if (!init) return false;
  const int code = init(0);
  saw_("rsmi_init", code == rocm_smi::kSuccess ? "success" : "error " + std::to_string(code));
  return started_ = code == rocm_smi::kSuccess;
}

std::vector<DeviceProcess> rocm_smi_processes(RocmSmi& api, uint32_t device) {
  constexpr uint32_t kMost = 1024;
  std::vector<DeviceProcess> out;
  std::vector<rocm_smi::Process> list(kMost);
  uint32_t count = kMost;
  if (!api.call<rocm_smi::Process*, uint32_t*>("", "rsmi_compute_process_info_get", list.data(), &count)) return out;
  for (uint32_t i = 0; i < std::min(count, kMost); ++i) {
    // The list is of all devices; one call more says what a process has on this one, and fails where it has nothing.
    rocm_smi::Process here{};
    if (!api.call<uint32_t, uint32_t, rocm_smi::Process*>("", "rsmi_compute_process_info_by_device_get", list[i].pid, device, &here))
      continue;
    out.push_back({list[i].pid, plausible(here.vram)});
  }
  return out;
}

}  // namespace plimsoll
