// A trace under the allocators beside PyTorch's caching one (cuda_timeline.h): one list, each with the figures it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/alloc_conf.h"
#include "trace/trace.h"

namespace plimsoll {

struct AllocatorFigure {
  const char* key;   // in JSON; those that end in _bytes are bytes
  const char* name;  // in text
  const char* note;
  int64_t value = 0;
  bool is_bytes = true;
};

struct AllocatorFigures {
  std::string circumstances;  // "75 % of the device, taken at once"
  std::vector<AllocatorFigure> figures;
  std::optional<int64_t> oom_event;  // index into Trace::events: the run ends there
};

struct TraceAllocatorOptions {
  AllocConf conf;                 // pinned: its pinned_* settings
  std::optional<int64_t> memory;  // of the device; none: nothing ever runs out. Not for pinned, which is on the host
  int64_t in_use = 0;             // of it, by others
};

struct TraceAllocator {
  const char* name;
  const char* summary;
  bool on_device, has_settings;  // whether `memory` and `conf` are for it
  AllocatorFigures (*run)(const Trace& trace, const TraceAllocatorOptions& options);
};

// ideal, bfc, pinned.
const std::vector<TraceAllocator>& trace_allocators();

}  // namespace plimsoll
