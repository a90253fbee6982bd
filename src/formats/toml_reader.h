// TOML text to JSON values, with the line in every error.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace plimsoll {

nlohmann::json parse_toml_text(const std::string& text, const std::string& name);
// Lines of `[section]` or `key = value`.
bool looks_like_toml(const std::string& text);

}  // namespace plimsoll
