// What stands before a trainer in a command: the environment and the launcher, which say how many processes run and may name files
// of their own; and the trainer's settings, from the file that the command names with the command's flags on top.
#pragma once

#include <optional>

#include "formats/program.h"

namespace plimsoll {

// Allocator, processes (as DistributedDataParallel, which a trainer takes back when it shards), the launcher's own flags and files.
void read_launch(Reader& r);

// The file named by one of `flags`, or the first argument that is a file of settings; then the flags and arguments like key=value.
// None: the command alone.
Document settings_of(Reader& r, std::initializer_list<const char*> flags);

// Devices in CUDA_VISIBLE_DEVICES; none when it is not set.
std::optional<int64_t> visible_devices(const Reader& r);

// So many processes, with DistributedDataParallel: `ddp` are its own settings, which one process alone has only where some are given.
void set_world(Reader& r, int64_t per_node, int64_t nodes, const std::string& origin, nlohmann::json ddp = nlohmann::json::object());

}  // namespace plimsoll
