// NVIDIA devices, again and again, through handles that stay open.
#include <algorithm>

#include "hardware/meters.h"
#include "hardware/nvml_library.h"

namespace plimsoll {

namespace {

using namespace nvml;

class NvmlMeter : public DeviceMeter {
 public:
  NvmlMeter(const Surroundings& s, const std::vector<DetectedDevice>& devices) : api_(s.nvml, [](std::string, std::string) {}) {
    started_ = api_.start();
    for (const DetectedDevice& d : devices) handles_.push_back(started_ && d.source == "nvml" ? open(d, devices) : nullptr);
  }

  bool started() const { return started_; }

  void read(const std::vector<DetectedDevice>& devices, const std::vector<int64_t>&, std::vector<DeviceReading>& out) override {
    for (size_t i = 0; i < devices.size(); ++i)
      if (handles_[i]) out[i] = read_one(handles_[i], devices[i]);
  }

 private:
  Device open(const DetectedDevice& d, const std::vector<DetectedDevice>& devices) {
    Device device = nullptr, slice = nullptr;
    int index = d.index;
    if (!d.parent_uuid.empty()) {
      const auto parent = std::find_if(devices.begin(), devices.end(), [&](const DetectedDevice& p) { return p.uuid == d.parent_uuid; });
      if (parent == devices.end()) return nullptr;
      index = parent->index;
    }
    if (api_.call("", "nvmlDeviceGetHandleByIndex_v2", kByIndex, static_cast<unsigned>(index), &device) != kSuccess) return nullptr;
    if (d.parent_uuid.empty()) return device;
    const auto slot = static_cast<unsigned>(d.index);
    return api_.call("", "nvmlDeviceGetMigDeviceHandleByIndex", kSlice, device, slot, &slice) == kSuccess ? slice : nullptr;
  }

  DeviceReading read_one(Device device, const DetectedDevice& d) {
    DeviceReading r;
    MemoryV2 v2{kMemoryV2, 0, 0, 0, 0};
    Memory v1{};
    if (api_.call("", "nvmlDeviceGetMemoryInfo_v2", kMemoryOfV2, device, &v2) == kSuccess) {
      r.answers = true;
      r.used = Bytes{static_cast<int64_t>(v2.used)};
    } else if (api_.call("", "nvmlDeviceGetMemoryInfo", kMemory, device, &v1) == kSuccess) {
      r.answers = true;
      r.used = Bytes{static_cast<int64_t>(v1.used)};
    }
    if (!d.total || (r.used && (r.used->count < 0 || *r.used > *d.total))) r.used = std::nullopt;
    Utilization load{};
    const int code = api_.call("", "nvmlDeviceGetUtilizationRates", kUtilization, device, &load);
    if (code == kSuccess && load.gpu <= 100) r.busy = load.gpu / 100.0;
    r.answers |= code == kSuccess;
    r.processes = nvml_processes(api_, "", device, d.total);
    r.answers |= !r.processes.empty();
    return r;
  }

  Nvml api_;
  bool started_ = false;
  std::vector<Device> handles_;  // null: not this driver's
};

}  // namespace

std::unique_ptr<DeviceMeter> nvml_meter(const Surroundings& s, const std::vector<DetectedDevice>& devices) {
  if (std::none_of(devices.begin(), devices.end(), [](const DetectedDevice& d) { return d.source == "nvml"; })) return nullptr;
  auto meter = std::make_unique<NvmlMeter>(s, devices);
  return meter->started() ? std::move(meter) : nullptr;
}

}  // namespace plimsoll
