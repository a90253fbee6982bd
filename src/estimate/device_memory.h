// From a trace to the numbers people compare with a screen: what PyTorch's counters say, what nvidia-smi shows, and how sure that
// is. The allocator is simulated exactly; what lies outside it is a table of overheads (overheads.h).
#pragma once

#include "estimate/overheads.h"
#include "trace/trace.h"

namespace plimsoll {

struct DeviceMemory {
  Range allocated;  // torch.cuda.max_memory_allocated()
  Range reserved;   // torch.cuda.max_memory_reserved()
  Range device;     // of this process in nvidia-smi: reserved and the overheads
  Range resting;    // torch.cuda.memory_allocated() after the last step
  std::vector<Overhead> overheads;
};

// Throws an Error beyond 1 PiB.
DeviceMemory device_memory(const Trace& trace, const DeviceFacts& facts);

}  // namespace plimsoll
