#include "job/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

using Json = nlohmann::json;

// Names are joined by '+'; a regular expression with a '+' has other signs too.
Json parse_flag_value(const std::string& text) {
  const Json scalar = parse_scalar(text);
  const bool joined = text.find('+') != std::string::npos && std::all_of(text.begin(), text.end(), [](unsigned char c) {
                        return std::isalnum(c) || c == '_' || c == '.' || c == '+' || c == '-';
                      });
  if (!scalar.is_string() || !joined) return scalar;
  Json list = Json::array();
  for (const std::string& part : split_at(text, '+')) list.push_back(parse_scalar(part));
  return list;
}

Json read_pairs(const std::vector<std::string>& pairs, const std::string& source, const std::string& example, ExitCode code) {
  Json out = Json::object();
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) throw Error(fmt::format("[{}] '{}' is not KEY=VALUE", source, pair), example, code);
    const std::string key = pair.substr(0, equals);
    if (out.contains(key)) throw Error(fmt::format("[{}] '{}' is given twice", source, key), "leave one of them out", code);
    out[key] = parse_flag_value(pair.substr(equals + 1));
  }
  return out;
}

namespace {

// A mapping has few keys: all of them, where none is near.
std::string nearest_or_all(const std::string& key, const std::vector<std::string>& known) {
  const std::string hint = did_you_mean(key, known);
  return hint.starts_with("known: ") ? "known: " + join(known, ", ") : hint;
}

}  // namespace

Config fields_of(const Json& value, const std::string& source, const std::vector<std::string>& known, const std::string& example) {
  Json fields = value;
  const bool all_defaults = value == true || value == "{}";  // the latter is what a flag says
  if (all_defaults) fields = Json::object();
  if (value.is_string() && !all_defaults) fields = read_pairs(split_at(value.get<std::string>(), ','), source, example);
  if (!fields.is_object()) throw Error(fmt::format("[{}] {} is not a mapping", source, dump(fields).substr(0, 80)), example);
  for (const auto& item : fields.items())
    if (std::find(known.begin(), known.end(), item.key()) == known.end())
      throw Error(fmt::format("[{}] '{}' is not known", source, item.key()), nearest_or_all(item.key(), known));
  return Config(source, fields);
}

}  // namespace plimsoll
