// Published rows of Megatron-LM: their model and layout as a Job.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "job/job.h"

namespace plimsoll {

bool is_megatron_row(const nlohmann::json& row);
// Fills the job; what it has no word for, else empty.
std::string read_megatron_row(const nlohmann::json& row, Job& job);

}  // namespace plimsoll
