// How much memory a framework gets on a device of the catalogue: what was seen, else the nominal size less what drivers keep.
#pragma once

#include <optional>
#include <string>

#include "hardware/catalogue.h"
#include "util/bytes.h"

namespace plimsoll {

struct Capacity {
  Bytes bytes;        // what torch.cuda.mem_get_info() calls total
  Bytes low, high;    // equal to bytes when it was seen on such a device
  std::string basis;  // where it comes from, for people
};

// Empty when neither the usable nor the driver's nor the nominal size of the device is established.
std::optional<Capacity> usable_memory(const DeviceSpec& device);

// What Metal lets a process use of a machine's unified memory when no limit is set.
Bytes apple_working_set(Bytes ram);

}  // namespace plimsoll
