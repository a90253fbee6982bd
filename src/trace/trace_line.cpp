#include "trace/trace_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

using Json = nlohmann::json;

void TraceLine::parse(std::string_view text) {
  json_ = Json::parse(text, nullptr, false);
  if (json_.is_discarded() || !json_.is_object()) refuse("not a JSON object");
}

void TraceLine::refuse(const std::string& what) const {
  throw Error(fmt::format("[trace] {}:{}: {}", file_, number_, what), "docs/trace-format.md describes the lines");
}

void TraceLine::only(std::initializer_list<const char*> keys) const {
  for (const auto& item : json_.items())
    if (std::none_of(keys.begin(), keys.end(), [&](const char* k) { return item.key() == k; }))
      refuse(fmt::format("'{}' is not known in such a line", printable(item.key(), 60)));
}

const Json& TraceLine::value(const char* key) const {
  const auto it = json_.find(key);
  if (it == json_.end()) refuse(fmt::format("no '{}'", key));
  return *it;
}

int64_t TraceLine::integer(const char* key, int64_t most, int64_t least) const {
  const Json& v = value(key);
  if (!v.is_number_integer() || (v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(most)) || v.get<int64_t>() < least ||
      v.get<int64_t>() > most)
    refuse(fmt::format("'{}' is {}, expected a whole number from {} to {}", key, v.dump(-1, ' ', false, Json::error_handler_t::replace),
                       least, most));
  return v.get<int64_t>();
}

std::string TraceLine::text(const char* key) const {
  const auto it = json_.find(key);
  if (it == json_.end() || !it->is_string()) refuse(fmt::format("'{}' is not a text", key));
  return it->get<std::string>();
}

bool TraceLine::flag(const char* key) const {
  const Json& v = value(key);
  if (!v.is_boolean()) refuse(fmt::format("'{}' is neither true nor false", key));
  return v.get<bool>();
}

}  // namespace plimsoll
