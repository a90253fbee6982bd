// Programs that start a training script in several processes (torchrun, accelerate, srun, ...), and how many a command of theirs starts.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/document.h"
#include "job/finding.h"

namespace plimsoll {

bool is_launcher(const std::string& program);  // "torchrun", "torch.distributed.run"

bool is_count(const nlohmann::json& value);  // a whole number above 0

// Fills "processes" and "nodes" of a command (job/command_line.h) by the flags of its launcher that hold a number.
void count_processes(nlohmann::json& command);

// The same for a command that is really used: counts of its launcher that are no numbers ("gpu", "1:4", a variable without a value) are
// replaced by what is taken for them, with a finding. Throws on those that cannot be, like 0.
void settle_counts(Document& command, std::vector<Finding>& findings);

// Devices in CUDA_VISIBLE_DEVICES; none when it is not set, or to a variable without a value.
std::optional<int64_t> visible_devices(const nlohmann::json& environment);

}  // namespace plimsoll
