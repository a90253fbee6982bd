// What an allocator made of a trace, as text for people and as JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "allocator/cuda_timeline.h"
#include "allocator/trace_allocators.h"
#include "report/document.h"

namespace plimsoll {

// The device that was asked for.
struct ReplayDevice {
  std::optional<int64_t> memory;  // none: no limit was given
  int64_t in_use = 0;
  CudaDevice cuda(int64_t without_limit = kBoundlessDevice) const { return {memory.value_or(without_limit), in_use, {}}; }
};

// A trace under PyTorch's caching allocator.
doc::Document timeline_document(const Trace& trace, const CudaTimeline& t, const std::string& conf, const ReplayDevice& device);
nlohmann::ordered_json timeline_json(const Trace& trace, const CudaTimeline& t, const std::string& conf, const ReplayDevice& device);

// A trace under another allocator.
doc::Document figures_document(const Trace& trace, const TraceAllocator& allocator, const AllocatorFigures& f);
nlohmann::ordered_json figures_json(const Trace& trace, const TraceAllocator& allocator, const AllocatorFigures& f,
                                    const ReplayDevice& device);

}  // namespace plimsoll
