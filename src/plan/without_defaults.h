// A setting that is an object, with its world and what is not the default: so it reads well as a flag.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace plimsoll {

nlohmann::json without_defaults(const nlohmann::json& setting, const nlohmann::json& defaults);

}  // namespace plimsoll
