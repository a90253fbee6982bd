// What torch.profiler's export_memory_timeline writes: amounts by category over time ([times, sizes]), or single events (raw).
#pragma once

#include <string>
#include <string_view>

#include "trace/trace.h"

namespace plimsoll {

// By its beginning: "[[1794840519481271," and "[[-1, 1, 65536, 0]".
bool looks_like_memory_timeline(std::string_view text);

// PyTorch's categories are ours where there is one of that meaning: AUTOGRAD_DETAIL is backward, TEMPORARY is optimizer, what it could
// not name is workspace. Throws an Error naming the file and what is wrong with it.
Trace read_memory_timeline(std::string_view text, const std::string& name);

}  // namespace plimsoll
