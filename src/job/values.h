// The settings that a job has, each under its key of job_settings() and in the form that apply_setting reads: the reverse of reading.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "job/job.h"

namespace plimsoll {

// Of every setting; null where there is none (no clipping, no adapter of that kind). `global_batch` is batch by another name and not
// among them.
std::map<std::string, nlohmann::json> values_of(const Job& job);
nlohmann::json value_of(const Job& job, const std::string& setting);

}  // namespace plimsoll
