// The few functions of NVIDIA's management library that are used, declared here because no header of it need be installed.
// Layouts and values as in nvml.h of CUDA 12 (NVML API reference, docs.nvidia.com/deploy/nvml-api).
#pragma once

#include <cstdint>

namespace plimsoll::nvml {

using Device = void*;

enum Return : int { kSuccess = 0, kNotSupported = 3, kNoPermission = 4, kNotFound = 6, kInsufficientSize = 7 };

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};

struct MemoryV2 {  // nvmlMemory_v2_t: reserved apart from used
  unsigned version;
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40);
constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | (2u << 24);

struct Pci {  // nvmlPciInfo_t
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(Pci) == 68);

struct Process {  // nvmlProcessInfo_t of _v2 and _v3
  unsigned pid;
  unsigned long long used;  // all bits set: not available (WDDM, some containers)
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(Process) == 24);
constexpr unsigned long long kUsedNotAvailable = ~0ull;

struct Utilization {  // nvmlUtilization_t: percent of the last sample period
  unsigned gpu, memory;
};

constexpr unsigned kNameSize = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE, NVML_DEVICE_UUID_V2_BUFFER_SIZE

}  // namespace plimsoll::nvml
