// NVIDIA devices, again and again, through handles that stay open.
#include <algorithm>
#include <vector>

#include "hardware/meters.h"
#include "hardware/nvml_library.h"

namespace plimsoll {

namespace {

class NvmlMeter : public DeviceMeter {
 public:
  NvmlMeter(const Surroundings& s, const std::vector<DetectedDevice>& devices) : api_(s.nvml, [](std::string, std::string) {}) {
    started_ = api_.start();
    for (const DetectedDevice& d : devices) handles_.push_back(started_ && d.source == "nvml" ? open(d) : nullptr);
  }

  bool started() const { return started_; }

  void read(const std::vector<DetectedDevice>& devices, const std::vector<int64_t>&, std::vector<DeviceReading>& out) override {
    for (size_t i = 0; i < devices.size(); ++i)
      if (handles_[i]) out[i] = read_one(handles_[i], devices[i]);
  }

 private:
  // A slice is reached through the whole device, which is not among `devices` where the slices stand for it.
  nvml::Device open(const DetectedDevice& d) {
    nvml::Device device = nullptr, slice = nullptr;
    if (d.parent_uuid.empty()) return by_index(static_cast<unsigned>(d.index));
    for (unsigned i = 0; (device = by_index(i)); ++i) {
      std::vector<char> uuid(nvml::kNameSize + 1, '\0');
      if (api_.call("", "nvmlDeviceGetUUID", nvml::kText, device, uuid.data(), nvml::kNameSize) != nvml::kSuccess) continue;
      if (printable(uuid.data()) == d.parent_uuid) break;
    }
    const auto slot = static_cast<unsigned>(d.index);
    if (!device || api_.call("", "nvmlDeviceGetMigDeviceHandleByIndex", nvml::kSlice, device, slot, &slice) != nvml::kSuccess)
      return nullptr;
    return slice;
  }

  nvml::Device by_index(unsigned index) {
    nvml::Device device = nullptr;
    const int code = api_.call("", "nvmlDeviceGetHandleByIndex_v2", nvml::kByIndex, index, &device);
    return code == nvml::kSuccess ? device : nullptr;
  }

  DeviceReading read_one(nvml::Device device, const DetectedDevice& d) {
    DeviceReading r;
    nvml::MemoryV2 v2{nvml::kMemoryV2, 0, 0, 0, 0};
    nvml::Memory v1{};
    if (api_.call("", "nvmlDeviceGetMemoryInfo_v2", nvml::kMemoryOfV2, device, &v2) == nvml::kSuccess) {
      r.answers = true;
      r.used = Bytes{static_cast<int64_t>(v2.used)};
    } else if (api_.call("", "nvmlDeviceGetMemoryInfo", nvml::kMemory, device, &v1) == nvml::kSuccess) {
      r.answers = true;
      r.used = Bytes{static_cast<int64_t>(v1.used)};
    }
    if (!d.total || (r.used && (r.used->count < 0 || *r.used > *d.total))) r.used = std::nullopt;
    nvml::Utilization load{};
    const int code = api_.call("", "nvmlDeviceGetUtilizationRates", nvml::kUtilization, device, &load);
    if (code == nvml::kSuccess && load.gpu <= 100) r.busy = load.gpu / 100.0;
    r.answers |= code == nvml::kSuccess;
    r.processes = nvml_processes(api_, "", device, d.total);
    r.answers |= !r.processes.empty();
    return r;
  }

  Nvml api_;
  bool started_ = false;
  std::vector<nvml::Device> handles_;  // null: not this driver's
};

}  // namespace

std::unique_ptr<DeviceMeter> nvml_meter(const Surroundings& s, const std::vector<DetectedDevice>& devices) {
  if (std::none_of(devices.begin(), devices.end(), [](const DetectedDevice& d) { return d.source == "nvml"; })) return nullptr;
  auto meter = std::make_unique<NvmlMeter>(s, devices);
  return meter->started() ? std::move(meter) : nullptr;
}

}  // namespace plimsoll
