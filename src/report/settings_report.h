// The table of settings for people and pages: docs/job-file.md holds what settings_markdown() gives.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace plimsoll {

nlohmann::ordered_json settings_json();  // a row per setting
std::string settings_markdown();         // a table per group

}  // namespace plimsoll
