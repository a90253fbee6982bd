// The [memory] events of a torch.profiler trace (profile_memory=True, export_chrome_trace): what was allocated and freed on each device,
// by which op and, with with_stack=True, in which modules. Read event by event, so that a trace of any size costs only what is kept.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace plimsoll {

struct ProfiledDevice {
  std::string name;  // "cpu", "cuda:0"
  Trace trace;
  std::vector<int64_t> reserved;        // after each event of the trace, as the profiler says; 0: not said
  int64_t before = 0;                   // bytes allocated before the profile began
  int64_t peak = 0, reserved_peak = 0;  // of what the profiler says
  size_t events = 0;
};

bool looks_like_profiler_trace(std::string_view text);
// GPUs first, the one with the most memory first. Throws an Error when there are no such events.
std::vector<ProfiledDevice> read_profiler_trace(std::string_view text, const std::string& name);

}  // namespace plimsoll
