// A setting that is itself a mapping: from a job file, or as the text of a flag, "key=value,key=value".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "job/config.h"

namespace plimsoll {

// Throws an Error with `example` as its way out for what is no mapping, and for a key that is not in `known`.
Config fields_of(const nlohmann::json& value, const std::string& source, const std::vector<std::string>& known, const std::string& example);

}  // namespace plimsoll
