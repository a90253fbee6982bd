// The most that a process of a run held on a device, from looks at the drivers while it runs. What a caching allocator has reserved it
// keeps, so looks may be seconds apart.
#pragma once

#include <optional>

#include "hardware/meters.h"

namespace plimsoll {

class DevicePeak {
 public:
  DevicePeak(const Surroundings& s, const std::vector<DetectedDevice>& devices);

  void look(const std::vector<int64_t>& pids);
  void clear() { most_.reset(), several_ = false; }

  struct Most {
    DetectedDevice device;
    Bytes bytes;
  };
  // None when the drivers tell nothing, and when one process is on several devices: which part of it is where was not asked.
  std::optional<Most> most() const { return several_ ? std::nullopt : most_; }

 private:
  DeviceMeters meters_;
  std::optional<Most> most_;
  bool several_ = false;
};

}  // namespace plimsoll
