#include "job/config_list.h"

#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// One element as a configuration of its own, so that messages name the list.
Config element(const Config& c, const char* key, const Json& value) { return {c.source() + ": " + key, {{"each", value}}}; }

const Json& list(const Config& c, const char* key, const Json& value, const char* example, size_t least = 1) {
  if (!value.is_array() || value.size() < least)
    throw Error("[" + c.source() + "] " + key + " is " + dump(value).substr(0, 80) + ", expected a list", std::string("e.g. ") + example);
  return value;
}

void require_count(const Config& c, const char* key, size_t found, size_t count) {
  if (found != count)
    throw Error("[" + c.source() + "] " + key + " has " + std::to_string(found) + " values for " + std::to_string(count) + " blocks",
                "give one for each block, or one number for all");
}

}  // namespace

std::vector<int64_t> size_list(const Config& c, const char* key, const std::vector<int64_t>& fallback, size_t least) {
  const Json* values = c.find({key});
  if (!values) return fallback;
  std::vector<int64_t> out;
  for (const Json& value : list(c, key, *values, "[320, 640]", least)) out.push_back(element(c, key, value).size({"each"}, 1));
  return out;
}

std::vector<int64_t> size_per_block(const Config& c, const char* key, int64_t fallback, size_t count) {
  const Json* values = c.find({key});
  if (!values || !values->is_array()) return std::vector<int64_t>(count, c.size({key}, fallback));
  std::vector<int64_t> out = size_list(c, key, {});
  require_count(c, key, out.size(), count);
  return out;
}

std::vector<bool> flag_per_block(const Config& c, const char* key, bool fallback, size_t count) {
  const Json* values = c.find({key});
  if (!values || !values->is_array()) return std::vector<bool>(count, c.flag({key}, fallback));
  std::vector<bool> out;
  for (const Json& value : *values) out.push_back(element(c, key, value).flag({"each"}, false));
  require_count(c, key, out.size(), count);
  return out;
}

std::vector<std::string> name_list(const Config& c, const char* key, const std::vector<std::string>& fallback) {
  const Json* values = c.find({key});
  if (!values) return fallback;
  std::vector<std::string> out;
  for (const Json& value : list(c, key, *values, "[\"DownBlock2D\"]")) out.push_back(element(c, key, value).text({"each"}, ""));
  return out;
}

}  // namespace plimsoll
