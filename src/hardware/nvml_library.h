// NVIDIA's management library between nvmlInit and nvmlShutdown, for one look (nvml.cpp) or many (nvml_meter.cpp).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hardware/machine.h"
#include "hardware/nvml_api.h"
#include "hardware/shared_library.h"

namespace plimsoll {

class Nvml {
 public:
  using Saw = std::function<void(std::string what, std::string value)>;  // told what the driver says
  Nvml(const std::vector<std::string>& names, Saw saw) : lib_(names), saw_(std::move(saw)) {}
  ~Nvml();

  bool start();
  const std::string& problem() const { return problem_; }  // why it did not start; empty: no such library

  // Calls a function when the library has it; every answer but success is what the driver is seen to say.
  template <class... Parameters, class... Arguments>
  int call(const std::string& who, const char* name, int (*)(Parameters...), Arguments... arguments) {
    auto f = lib_.get<int(Parameters...)>(name);
    if (!f) return kNoFunction;
    const int code = f(arguments...);
    if (code != nvml::kSuccess) saw_(who + name, text(code));
    return code;
  }

  std::string text(int code) const;

  static constexpr int kNoFunction = -1;

 private:
  SharedLibrary lib_;
  Saw saw_;
  std::string problem_;
  bool started_ = false;
};

// Signatures, so that a call names function and types together.
namespace nvml {
inline int (*const kText)(Device, char*, unsigned) = nullptr;
inline int (*const kCount)(unsigned*) = nullptr;
inline int (*const kByIndex)(unsigned, Device*) = nullptr;
inline int (*const kOfDevice)(Device, unsigned*) = nullptr;
inline int (*const kMode)(Device, unsigned*, unsigned*) = nullptr;
inline int (*const kCapability)(Device, int*, int*) = nullptr;
inline int (*const kSlice)(Device, unsigned, Device*) = nullptr;
inline int (*const kMemory)(Device, Memory*) = nullptr;
inline int (*const kMemoryOfV2)(Device, MemoryV2*) = nullptr;
inline int (*const kPci)(Device, Pci*) = nullptr;
inline int (*const kProcesses)(Device, unsigned*, Process*) = nullptr;
inline int (*const kUtilization)(Device, Utilization*) = nullptr;
}  // namespace nvml

// Processes that compute or draw on a device; a size above `total` is no size.
std::vector<DeviceProcess> nvml_processes(Nvml& api, const std::string& who, nvml::Device device, std::optional<Bytes> total);

}  // namespace plimsoll
