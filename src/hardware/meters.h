// Devices looked at again and again: what each says now of its memory, its load and its processes. Unlike detect(), which looks once, the
// drivers' libraries stay open in between.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "hardware/machine.h"
#include "hardware/surroundings.h"

namespace plimsoll {

struct DeviceReading {
  std::optional<Bytes> used;
  std::optional<double> busy;  // share of the last moments in which something ran on it, 0 to 1
  std::vector<DeviceProcess> processes;
  bool answers = false;  // false: the driver no longer tells about it
};

// A driver that can be asked about some of the devices: one file each, one line in the list of meters.cpp.
class DeviceMeter {
 public:
  virtual ~DeviceMeter() = default;
  // Fills in what is not known yet about the devices it serves. `pids`: the processes that matter, where asking about all is slow.
  virtual void read(const std::vector<DetectedDevice>& devices, const std::vector<int64_t>& pids, std::vector<DeviceReading>& out) = 0;
};

std::unique_ptr<DeviceMeter> nvml_meter(const Surroundings& s, const std::vector<DetectedDevice>& devices);      // null: no driver
std::unique_ptr<DeviceMeter> rocm_smi_meter(const Surroundings& s, const std::vector<DetectedDevice>& devices);  // null: no driver
std::unique_ptr<DeviceMeter> drm_meter(const Surroundings& s, const std::vector<DetectedDevice>& devices);

class DeviceMeters {
 public:
  DeviceMeters(const Surroundings& s, std::vector<DetectedDevice> devices);
  const std::vector<DetectedDevice>& devices() const { return devices_; }
  std::vector<DeviceReading> read(const std::vector<int64_t>& pids);  // one for each of devices()

 private:
  Surroundings s_;
  std::vector<DetectedDevice> devices_;
  std::vector<std::unique_ptr<DeviceMeter>> meters_;
};

}  // namespace plimsoll
