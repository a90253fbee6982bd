// The devices that are known: one row a device, each with its sources. A value that nobody established is empty here too;
// nothing is filled in by guessing. What a row means for a job is in capacity.h, finding a row by name in lookup.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// How the device's memory relates to the host's: its own; its own but addressed by the CPU too (Grace); one pool for both.
enum class MemoryKind { discrete, coherent, unified };
const char* to_string(MemoryKind kind);

struct DeviceSpec {
  std::string id, name;
  std::string driver_name;  // what NVML, ROCm and torch.cuda.get_device_name print; empty where not established
  std::string vendor, segment, arch;
  std::optional<double> nominal_gb;        // as marketed, per device that a framework sees
  std::optional<double> driver_total_mib;  // as nvidia-smi prints it
  std::optional<double> usable_gib;        // as the framework reports the device's capacity
  std::string memory_type;
  std::optional<double> bandwidth_gbs;  // 10^9 bytes a second
  // 10^12 operations a second, dense, accumulating in fp32.
  std::optional<double> bf16_tflops, fp16_tflops, tf32_tflops, fp32_tflops;
  MemoryKind memory = MemoryKind::discrete;
  std::string interconnect;
  std::optional<double> interconnect_gbs;  // as the vendor adds it up
  std::string compute_capability;          // CUDA's, or AMD's gfx target
  std::vector<std::string> sources;        // written out, not keys
  std::string notes;
};

// Parses the catalogue; `source` is what errors call the file. Throws Error with the line on a malformed row: a wrong number of
// fields, a number that is none or not positive, an unknown kind of memory, a repeated id, a row without a source.
std::vector<DeviceSpec> parse_catalogue(std::string_view devices_csv, std::string_view sources_csv, const std::string& source);

// data/gpus.csv and data/gpus_sources.csv, which are part of the binary.
const std::vector<DeviceSpec>& catalogue();

}  // namespace plimsoll
