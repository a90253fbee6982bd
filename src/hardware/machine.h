// What detection found: what each source said (raw), the devices and the host's memory that follow from it, and what stands in
// the way of an answer. Plain data; detect() fills it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hardware/catalogue.h"
#include "util/bytes.h"

namespace plimsoll {

// One thing that was looked at and what it said, word for word.
struct Observation {
  std::string source;  // "nvml", "/proc/meminfo", "environment"
  std::string what;
  std::string value;
};

enum class Visible { yes, no, unknown };
const char* to_string(Visible visible);

struct DeviceProcess {
  int64_t pid = 0;
  std::optional<Bytes> used;
};

struct DetectedDevice {
  std::string vendor, name, uuid, pci;         // pci as "0000:01:00.0", lower case
  std::string source;                          // who told about it first
  std::string target;                          // CUDA capability "8.9" or "gfx1151"
  std::string parent_uuid;                     // a MIG slice: the whole device
  int index = -1;                              // in its driver's order
  bool split = false;                          // MIG is on: frameworks see its slices instead
  Visible visible = Visible::yes;              // to a process started from here
  std::optional<Bytes> total, reserved, used;  // as the driver says; nothing when it does not say or says nonsense
  std::optional<Bytes> shared_total;           // AMD APU: the part of the host's memory that the driver lends out (GTT)
  MemoryKind memory = MemoryKind::discrete;
  std::optional<Bytes> usable;  // what a framework will call the device's total
  std::string basis;            // how usable was established, or why not
  std::string catalogue_id;     // empty: not in the catalogue, or not certain which
  std::vector<DeviceProcess> processes;
};

struct HostMemory {
  std::optional<Bytes> total, available, swap;  // /proc/meminfo
  std::optional<Bytes> limit, limit_used;       // the tightest control group above this process
  std::string limit_source;
  std::optional<Bytes> shm;  // size of /dev/shm, which DataLoader workers share batches through
  // What this process may have in all, and may still take now: the machine's or the control group's, whichever is less.
  std::optional<Bytes> usable_total() const;
  std::optional<Bytes> usable_now() const;
};

struct Machine {
  std::string system;  // kernel, distribution where it matters
  bool wsl = false, container = false;
  std::string nvidia_driver;
  std::vector<DetectedDevice> devices;
  HostMemory host;
  std::vector<Observation> raw;
  std::vector<std::string> conclusions, blockers;

  void saw(std::string source, std::string what, std::string value) {
    raw.push_back({std::move(source), std::move(what), std::move(value)});
  }
};

}  // namespace plimsoll
