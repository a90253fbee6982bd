// AMD devices, again and again, through ROCm's management library.
#include <algorithm>

#include "hardware/meters.h"
#include "hardware/rocm_smi_library.h"

namespace plimsoll {

namespace {

class RocmSmiMeter : public DeviceMeter {
 public:
  explicit RocmSmiMeter(const Surroundings& s) : api_(s.rocm_smi, [](std::string, std::string) {}) { started_ = api_.start(); }
  bool started() const { return started_; }

  void read(const std::vector<DetectedDevice>& devices, const std::vector<int64_t>&, std::vector<DeviceReading>& out) override {
    for (size_t i = 0; i < devices.size(); ++i)
      if (devices[i].source == "rocm-smi") out[i] = read_one(devices[i]);
  }

 private:
  DeviceReading read_one(const DetectedDevice& d) {
    DeviceReading r;
    const auto index = static_cast<uint32_t>(d.index);
    uint64_t used = 0;
    uint32_t busy = 0;
    r.answers = api_.call<uint32_t, int, uint64_t*>("", "rsmi_dev_memory_usage_get", index, rocm_smi::kVram, &used);
    if (r.answers && d.total && used <= static_cast<uint64_t>(d.total->count)) r.used = Bytes{static_cast<int64_t>(used)};
    if (api_.call<uint32_t, uint32_t*>("", "rsmi_dev_busy_percent_get", index, &busy) && busy <= 100) r.busy = busy / 100.0;
    r.processes = rocm_smi_processes(api_, index);
    return r;
  }

  RocmSmi api_;
  bool started_ = false;
};

}  // namespace

std::unique_ptr<DeviceMeter> rocm_smi_meter(const Surroundings& s, const std::vector<DetectedDevice>& devices) {
  if (std::none_of(devices.begin(), devices.end(), [](const DetectedDevice& d) { return d.source == "rocm-smi"; })) return nullptr;
  auto meter = std::make_unique<RocmSmiMeter>(s);
  return meter->started() ? std::move(meter) : nullptr;
}

}  // namespace plimsoll
