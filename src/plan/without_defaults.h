// A setting that is an object, with its world and what is not the default: so it reads well as a flag.
#pragma once

#include <nlohmann/json.hpp>

namespace plimsoll {

inline nlohmann::json without_defaults(const nlohmann::json& setting, const nlohmann::json& defaults) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : setting.items())
    if (key == "world" || value != defaults.value(key, nlohmann::json())) out[key] = value;
  return out;
}

}  // namespace plimsoll
