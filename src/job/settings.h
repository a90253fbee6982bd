// Every setting of a Job in one list: its key in job files, its flag, its help, and how a value is applied. Files, flags and
// `plimsoll list settings` all come from here, so each flag has a key and each key a flag.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "job/job.h"

namespace plimsoll {

struct Setting {
  const char* key;    // "batch"; its flag is --batch, with '-' for '_'
  const char* value;  // what the value looks like: "N", "fp32|amp|...", "" for a switch
  const char* help;
  std::function<void(Job&, const Config&)> apply;  // Config holds {key: value}
};

const std::vector<Setting>& job_settings();
std::string flag_of(const Setting& s);

// Applies one value and remembers where it came from. Unknown keys and wrong values throw an Error.
void apply_setting(Job& job, const std::string& key, const nlohmann::json& value, const std::string& origin);
// The value of a flag as JSON: numbers, true/false and null by their look, the rest as text.
nlohmann::json parse_scalar(const std::string& text);

}  // namespace plimsoll
