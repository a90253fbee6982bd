#include "supervise/device_peak.h"

#include <algorithm>
#include <map>

namespace plimsoll {

DevicePeak::DevicePeak(const Surroundings& s, const std::vector<DetectedDevice>& devices) : meters_(s, devices) {}

void DevicePeak::look(const std::vector<int64_t>& pids) {
  constexpr int64_t kContext = 1 << 30;  // less on a second device is a context that was made by mistake
  const std::vector<DeviceReading> readings = meters_.read(pids);
  std::map<int64_t, int> large;  // devices on which a process holds more than a context
  for (size_t i = 0; i < readings.size(); ++i)
    for (const DeviceProcess& p : readings[i].processes) {
      if (!p.used || std::find(pids.begin(), pids.end(), p.pid) == pids.end()) continue;
      several_ |= p.used->count > kContext && ++large[p.pid] > 1;
      if (!most_ || *p.used > most_->bytes) most_ = Most{meters_.devices()[i], *p.used};
    }
}

}  // namespace plimsoll
