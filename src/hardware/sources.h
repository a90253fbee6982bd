// Where devices are learnt from: one file a source, one line in the list of detect.cpp. Each adds what it saw and the devices
// that no earlier source told of; none throws for anything a driver or a file can say.
#pragma once

#include <optional>
#include <string>

#include "hardware/machine.h"
#include "hardware/surroundings.h"

namespace plimsoll {

void probe_system(const Surroundings& s, Machine& m);       // kernel, WSL, container, environment
void probe_host_memory(const Surroundings& s, Machine& m);  // /proc/meminfo, control groups, /dev/shm
void probe_nvml(const Surroundings& s, Machine& m);         // NVIDIA's management library
void probe_nvidia_proc(const Surroundings& s, Machine& m);  // /proc/driver/nvidia, device tree of a Jetson
void probe_rocm_smi(const Surroundings& s, Machine& m);     // AMD's management library
void probe_drm(const Surroundings& s, Machine& m);          // /sys/class/drm and /sys/class/kfd
void probe_apple(const Surroundings& s, Machine& m);        // sysctl
void probe_fdinfo(const Surroundings& s, Machine& m);       // who uses the devices: /proc/*/fdinfo

// Adds what one process has on the devices of `m` that the kernel's own drivers serve.
void read_fdinfo(const Surroundings& s, Machine& m, const std::string& pid);

// The device with this PCI address, else null.
DetectedDevice* device_at(Machine& m, const std::string& pci);

// A driver's count of bytes, unless no device can have it: 0, or 1 PiB and more (the largest device has 288 GB).
std::optional<Bytes> plausible(uint64_t bytes);

}  // namespace plimsoll
