#include "estimate/device_memory.h"

#include "allocator/cuda_timeline.h"
#include "util/error.h"

namespace plimsoll {

DeviceMemory device_memory(const Trace& trace, const DeviceFacts& facts) {
  const CudaTimeline t = cuda_timeline(trace);
  if (t.oom) throw Error("[estimate] more than 1 PiB", "check the sizes of the job");
  DeviceMemory m;
  m.allocated = exactly({t.allocated_peak});
  m.reserved = exactly({t.reserved_peak});
  m.resting = exactly({t.end.allocated});
  m.overheads = overheads(facts);
  m.device = m.reserved;
  for (const Overhead& o : m.overheads) m.device = m.device + o.range;
  return m;
}

}  // namespace plimsoll
