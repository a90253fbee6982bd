// AMD's management library between rsmi_init and rsmi_shut_down, with prototypes of our own (rocm_smi.h of ROCm 6), for one look
// (rocm_smi.cpp) or many (rocm_smi_meter.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hardware/machine.h"
#include "hardware/shared_library.h"

namespace plimsoll {

namespace rocm_smi {

constexpr const char* kDriver = "/sys/class/kfd";
constexpr int kSuccess = 0;                     // RSMI_STATUS_SUCCESS
enum MemoryType : int { kVram = 0, kGtt = 2 };  // rsmi_memory_type_t

struct Process {  // rsmi_process_info_t
  uint32_t pid, pasid;
  uint64_t vram, sdma;
  uint32_t occupancy;
};
static_assert(sizeof(Process) == 32);

}  // namespace rocm_smi

class RocmSmi {
 public:
  using Saw = std::function<void(std::string what, std::string value)>;  // told what the driver says
  RocmSmi(const std::vector<std::string>& names, Saw saw) : lib_(names), saw_(std::move(saw)) {}
  ~RocmSmi();

  bool start();

  template <class... Parameters>
  bool call(const std::string& who, const char* name, Parameters... arguments) {
    auto f = lib_.get<int(Parameters...)>(name);
    if (!f) return false;
    const int code = f(arguments...);
    if (code != rocm_smi::kSuccess) saw_(who + name, "error " + std::to_string(code));
    return code == rocm_smi::kSuccess;
  }

 private:
  SharedLibrary lib_;
  Saw saw_;
  bool started_ = false;
};

// Processes that compute on a device.
std::vector<DeviceProcess> rocm_smi_processes(RocmSmi& api, uint32_t device);

}  // namespace plimsoll
