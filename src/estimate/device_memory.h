// From a trace to the numbers people compare with a screen: what PyTorch's counters say, what nvidia-smi shows, and how sure that
// is. The allocator is simulated exactly; what lies outside it is a table of overheads (overheads.h).
#pragma once

#include "allocator/cuda_timeline.h"
#include "estimate/overheads.h"

namespace plimsoll {

// What measured peaks of like runs on this machine said (calibration.h).
struct Correction {
  Bytes residual;         // added to the sum of the rows above it; negative: less was measured
  ByteRange before;       // the device's range without it
  int64_t runs = 0;       // how many were measured
  Bytes lowest, highest;  // their residuals
};

struct DeviceMemory {
  ByteRange allocated;  // torch.cuda.max_memory_allocated()
  ByteRange reserved;   // torch.cuda.max_memory_reserved()
  ByteRange device;     // of this process in nvidia-smi: reserved and the overheads
  ByteRange resting;    // torch.cuda.memory_allocated() after the last step
  std::vector<Overhead> overheads;
  std::optional<Correction> correction;  // in `device`
};

// `run` is the trace on a boundless device. Intervals hold nine runs of ten; what they rest on is said in device_memory.cpp.
DeviceMemory device_memory(const CudaTimeline& run, const DeviceFacts& facts);

// Whether cuDNN had something to do.
bool uses_convolutions(const Trace& trace);

}  // namespace plimsoll
