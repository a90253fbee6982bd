#include "estimate/device_memory.h"

#include <algorithm>

namespace plimsoll {

namespace {

// How far published measurements lie from the prediction (docs/accuracy.md): factors below and above that hold nine of ten.
// Workspaces of convolutions depend on the algorithm that cuDNN picks, so runs with them spread wider.
struct Spread {
  double low, high;
};
constexpr Spread kAllocated{0.97, 1.03}, kReserved{0.95, 1.09}, kConvolutions{0.92, 1.09};

ByteRange spread(int64_t bytes, const Spread& s) {
  const double b = static_cast<double>(bytes);
  return {{bytes}, {static_cast<int64_t>(b * s.low)}, {static_cast<int64_t>(b * s.high)}};
}

}  // namespace

DeviceMemory device_memory(const CudaTimeline& run, const DeviceFacts& facts) {
  DeviceMemory m;
  m.allocated = spread(run.allocated_peak, facts.convolutions ? kConvolutions : kAllocated);
  m.reserved = spread(run.reserved_peak, facts.convolutions ? kConvolutions : kReserved);
  m.resting = spread(run.end.allocated, kAllocated);
  m.overheads = overheads(facts);
  m.device = m.reserved;
  for (const Overhead& o : m.overheads) m.device += o.range;
  return m;
}

bool uses_convolutions(const Trace& trace) {
  return std::any_of(trace.names.begin(), trace.names.end(), [](const std::string& name) { return name == "convolution"; });
}

}  // namespace plimsoll
