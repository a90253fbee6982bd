// Finds a device by what people and drivers call it. Words are compared, never substrings: the 4070 Laptop is not the 4070,
// and L4 is not L40. A name that could be several devices with different memory is an Error that lists them by memory.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "hardware/catalogue.h"
#include "util/bytes.h"

namespace plimsoll {

// "rtx-4090", "RTX 4090", "rtx4090", "4090", "NVIDIA GeForce RTX 4090", "rtx 3080 12gb", "a100-80gb", "a100-80". When several devices have
// the name and the same nominal memory (the A100 80 GB is a PCIe card or an SXM4 module), the result is named as asked, holds what they
// agree on, and leaves empty what they differ in. Throws Error when nothing has the name or it is ambiguous.
DeviceSpec find_device(std::string_view name, const std::vector<DeviceSpec>& devices = catalogue());

// The rows whose driver name is `driver_name`, word for word. When several share it, only those whose total is near what the
// driver reports. Names that a driver gives to many devices ("AMD Radeon Graphics") match nothing without `target`,
// the gfx target or CUDA capability, which must agree when both are known.
std::vector<DeviceSpec> devices_of_driver(std::string_view driver_name, std::optional<Bytes> total, std::string_view target,
                                          const std::vector<DeviceSpec>& devices = catalogue());

}  // namespace plimsoll
