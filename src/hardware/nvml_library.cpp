#include "hardware/nvml_library.h"

#include <fmt/format.h>

#include <algorithm>

#include "hardware/surroundings.h"

namespace plimsoll {

namespace {

// NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIB_RM_VERSION_MISMATCH.
std::string init_hint(int code) {
  if (code == 9) return "; load the nvidia kernel module, or give the container the device (--gpus all)";
  if (code == 18) return "; the driver was updated under a running kernel module: reboot";
  return "";
}

}  // namespace

Nvml::~Nvml() {
  if (auto shutdown = lib_.get<int()>("nvmlShutdown"); started_ && shutdown) shutdown();
}

bool Nvml::start() {
  saw_("library", lib_ ? lib_.name() : printable(lib_.error()));
  if (!lib_) return false;
  auto init = lib_.get<int()>("nvmlInit_v2");
  if (!init) {
    problem_ = lib_.name() + " has no nvmlInit_v2: it is no NVIDIA driver library, or one from before 2013";
    return false;
  }
  const int code = init();
  saw_("nvmlInit_v2", text(code));
  started_ = code == nvml::kSuccess;
  if (!started_) problem_ = "the driver does not start: " + text(code) + init_hint(code);
  return started_;
}

std::string Nvml::text(int code) const {
  if (code == nvml::kSuccess) return "success";
  auto name = lib_.get<const char*(int)>("nvmlErrorString");
  const char* words = name ? name(code) : nullptr;
  return fmt::format("error {}{}", code, words ? " (" + printable(words) + ")" : "");
}

std::vector<DeviceProcess> nvml_processes(Nvml& api, const std::string& who, nvml::Device device, std::optional<Bytes> total) {
  constexpr unsigned kMost = 1024;
  std::vector<DeviceProcess> out;
  std::vector<nvml::Process> list(kMost);
  for (const char* function : {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"}) {
    unsigned count = kMost;
    if (api.call(who, function, nvml::kProcesses, device, &count, list.data()) != nvml::kSuccess) continue;
    for (unsigned i = 0; i < std::min(count, kMost); ++i) {
      const nvml::Process& p = list[i];
      // One that does both is in both lists, with the same figure.
      if (std::any_of(out.begin(), out.end(), [&](const DeviceProcess& seen) { return seen.pid == p.pid; })) continue;
      const bool known =
          p.used != nvml::kUsedNotAvailable && p.used <= uint64_t{INT64_MAX} && (!total || p.used <= static_cast<uint64_t>(total->count));
      out.push_back({p.pid, known ? std::optional(Bytes{static_cast<int64_t>(p.used)}) : std::nullopt});
    }
  }
  return out;
}

}  // namespace plimsoll
