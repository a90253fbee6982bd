// Reads a job file: YAML or JSON, one mapping, keys as in job_settings(). Errors carry the line.
#pragma once

#include <string>

#include "job/job.h"

namespace plimsoll {

// Applies the file's settings to `job`. `name` is used in messages and origins.
void read_job_text(Job& job, const std::string& text, const std::string& name);
void read_job_file(Job& job, const std::string& path);

// Whole file as text; an Error when it cannot be read or is larger than 64 MiB.
std::string read_text_file(const std::string& path);
nlohmann::json parse_json_text(const std::string& text, const std::string& name, bool comments = false);  // errors name the line

}  // namespace plimsoll
