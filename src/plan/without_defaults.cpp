#include "plan/without_defaults.h"

#include <nlohmann/json.hpp>

namespace plimsoll {

nlohmann::json without_defaults(const nlohmann::json& setting, const nlohmann::json& defaults) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : setting.items())
    if (key == "world" || value != defaults.value(key, nlohmann::json())) out[key] = value;
  return out;
}

}  // namespace plimsoll
