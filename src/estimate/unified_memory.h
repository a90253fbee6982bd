// One pool for device and host (GB10, Jetson, Apple silicon, Strix Halo): the calculation written out step by step, from the total to
// the largest batch. Every size of the model and of a sample is simulated, and so is the batch that is found.
#pragma once

#include <optional>

#include "estimate/host_memory.h"
#include "estimate/verdict.h"
#include "hardware/catalogue.h"

namespace plimsoll {

struct UnifiedPool {
  Bytes total;
  std::string source;
  std::optional<Bytes> device_limit;  // what the device may take of it: Metal's working set, an APU's GTT
  std::string device_limit_source;
  std::optional<DeviceSpec> device;  // whose context it is; none: some NVIDIA card
  SystemReserve system = default_reserve();
  double margin = 0.1;  // of what the system leaves; for fragmentation, page cache and what is not known
};

// One line of the calculation: a size, or a number of samples.
struct UnifiedStep {
  std::string name;
  std::optional<Bytes> bytes;
  std::optional<int64_t> samples;
  std::string source;
};

// What the run takes of the pool at one batch size.
struct UnifiedPoint {
  int64_t batch = 0;
  Bytes device;  // max_memory_reserved() of all processes
  Bytes host;    // the host's steady state, without the system
};

struct UnifiedEstimate {
  UnifiedPool pool;
  std::vector<UnifiedStep> steps;
  std::vector<UnifiedPoint> simulated;  // every batch that was tried, ascending
  int64_t max_batch = 0;                // 0: not even one sample
  bool at_bound = false;                // max_batch is where the search ends, more may fit
  Bytes need;                           // at the job's own batch, with the system
  Verdict verdict = Verdict::unknown;   // fits: with the margin; tight: without
  std::vector<HostRow> loading;         // both sides while the model comes in
  ByteRange load_peak;
  Verdict load_verdict = Verdict::unknown;
};

// Simulates the job (its model must be resolved, its host settings pass check()) at as many batch sizes as the search needs.
UnifiedEstimate unified_memory(const Job& job, const HostFacts& facts, const UnifiedPool& pool);

}  // namespace plimsoll
