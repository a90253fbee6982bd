// Published measurements of torchtitan's own trainer: from a row to the Job that its code of that month ran.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "job/job.h"

namespace plimsoll {

bool is_torchtitan_row(const nlohmann::json& row);
// Fills `job`. Returns what the row asks for that a job has no word for; empty when nothing.
std::string read_torchtitan_row(const nlohmann::json& row, Job& job);

}  // namespace plimsoll
