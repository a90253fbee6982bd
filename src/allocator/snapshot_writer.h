// A simulated run as the file that torch.cuda.memory._dump_snapshot would have written, so that PyTorch's memory_viz opens it: the
// segments at the end, every event of the allocator, and the modules that asked for memory in the place of Python's frames.
#pragma once

#include <string>
#include <vector>

#include "allocator/alloc_conf.h"
#include "trace/trace.h"

namespace plimsoll {

// `steps`: their names, for annotations. The device never runs out. Times count events: there is no clock.
std::string snapshot_pickle(const Trace& trace, const AllocConf& conf, const std::vector<std::string>& steps);

}  // namespace plimsoll
