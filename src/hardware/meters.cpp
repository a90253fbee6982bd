#include "hardware/meters.h"

#include "hardware/own_pids.h"

namespace plimsoll {

DeviceMeters::DeviceMeters(const Surroundings& s, std::vector<DetectedDevice> devices) : s_(s), devices_(std::move(devices)) {
  if (devices_.empty()) return;
  for (const auto make : {nvml_meter, rocm_smi_meter, drm_meter})
    if (auto meter = make(s, devices_)) meters_.push_back(std::move(meter));
}

std::vector<DeviceReading> DeviceMeters::read(const std::vector<int64_t>& pids) {
  std::vector<DeviceReading> out(devices_.size());
  for (const auto& meter : meters_) meter->read(devices_, pids, out);
  take_for_own(s_, pids, out);
  return out;
}

}  // namespace plimsoll
