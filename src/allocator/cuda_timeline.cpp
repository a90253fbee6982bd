#include "allocator/cuda_timeline.h"

#include <algorithm>
#include <utility>

namespace plimsoll {

namespace {

CudaMoment moment(const CudaStats& s, size_t event) {
  return {static_cast<int64_t>(event), s.allocated, s.reserved, s.requested, s.inactive_split, s.segments};
}

}  // namespace

CudaTimeline cuda_timeline(const Trace& trace, const AllocConf& conf, const CudaDevice& device) {
  CudaCachingAllocator allocator(device, conf);
  const CudaStats& now = allocator.stats();
  CudaTimeline out;
  std::vector<CudaBlock*> blocks(trace.storages.size(), nullptr);
  for (size_t i = 0; i < trace.events.size() && !out.oom; ++i) {
    const Event& e = trace.events[i];
    if (e.kind == Event::Kind::step) out.steps.push_back({now.allocated, now.reserved});
    if (e.kind == Event::Kind::free && blocks[e.storage]) allocator.free(std::exchange(blocks[e.storage], nullptr));
    if (e.kind != Event::Kind::alloc || trace.storages[e.storage].bytes <= 0) continue;
    blocks[e.storage] = allocator.allocate(trace.storages[e.storage].bytes, e.value);
    if (!blocks[e.storage]) out.oom = CudaOom{static_cast<int64_t>(i), e.storage, allocator.last_oom()};
    if (now.allocated > out.at_allocated_peak.allocated) out.at_allocated_peak = moment(now, i);
    if (now.reserved > out.at_reserved_peak.reserved) out.at_reserved_peak = moment(now, i);
    if (out.steps.empty()) continue;
    CudaStepPeak& step = out.steps.back();
    step.allocated = std::max(step.allocated, now.allocated);
    step.reserved = std::max(step.reserved, now.reserved);
  }
  out.allocated_peak = now.peak_allocated;
  out.reserved_peak = now.peak_reserved;
  out.retries = now.retries;
  out.end = moment(now, 0);
  out.end.at_event = out.oom ? out.oom->at_event : static_cast<int64_t>(trace.events.size()) - 1;
  return out;
}

}  // namespace plimsoll
