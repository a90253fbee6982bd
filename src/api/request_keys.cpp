#include "api/request_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "util/text.h"

namespace plimsoll {

namespace {

const char* expected(KeyType type) {
  switch (type) {
    case KeyType::text: return "a text";
    case KeyType::texts: return "a text or a list of texts";
    case KeyType::number: return "a number";
    case KeyType::integer: return "a whole number";
    case KeyType::flag: return "true or false";
    case KeyType::size: return R"(a number of bytes, or a text like "24GiB")";
    case KeyType::object: return "an object";
    case KeyType::list: return "a list";
  }
  return "";
}

[[noreturn]] void refuse_value(const RequestKey& key, const nlohmann::json& value) {
  throw Error(fmt::format("[request] {} {} is not {}", key.key, printable(dump(value), 80), expected(key.type)),
              fmt::format("{}: {}", key.key, key.help));
}

void check_range(const RequestKey& key, const nlohmann::json& value) {
  if (!value.is_number() || !key.range.limited()) return;
  const double number = value.get<double>();
  const auto& [low, high, above] = key.range;
  if ((above ? number > low : number >= low) && number <= high) return;
  const std::string range =
      std::isinf(high) ? fmt::format("{} {:g}", above ? "above" : "at least", low) : fmt::format("from {:g} to {:g}", low, high);
  throw Error(fmt::format("[request] {} {} is not {}", key.key, dump(value), range), fmt::format("{}: {}", key.key, key.help));
}

template <class T, class Is>
void read_as(const Config& request, const RequestKey& key, T& out, Is is) {
  const nlohmann::json* value = request.find({key.key.c_str()});
  if (!value) return;
  if (!is(*value)) refuse_value(key, *value);
  check_range(key, *value);
  if constexpr (requires { typename T::value_type; } && !std::is_same_v<T, std::string>)
    out = value->get<typename T::value_type>();
  else
    out = value->get<T>();
}

bool is_text(const nlohmann::json& v) { return v.is_string(); }
bool is_flag(const nlohmann::json& v) { return v.is_boolean(); }
bool is_number(const nlohmann::json& v) { return v.is_number(); }

template <class T>
bool is_integer(const nlohmann::json& v) {
  if (!v.is_number_integer()) return false;
  if (v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<T>::max())) return false;
  const int64_t value = v.get<int64_t>();
  return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
}

}  // namespace

std::vector<RequestKey> operator+(std::vector<RequestKey> a, const std::vector<RequestKey>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Config request_of(const nlohmann::json& request, const std::vector<RequestKey>& keys) {
  if (!request.is_object())
    throw Error(fmt::format("[request] {} is not an object", printable(dump(request), 80)), R"(e.g. {"run": "gpt2"})", ExitCode::usage);
  std::vector<std::string> names;
  for (const RequestKey& k : keys) names.push_back(k.key);
  for (const auto& item : request.items())
    if (std::find(names.begin(), names.end(), item.key()) == names.end())
      throw Error("[request] '" + printable(item.key(), 80) + "' is not known", did_you_mean(item.key(), names), ExitCode::usage);
  return Config("request", request);
}

void read_value(const Config& request, const RequestKey& key, std::string& out) { read_as(request, key, out, is_text); }
void read_value(const Config& request, const RequestKey& key, std::optional<std::string>& out) { read_as(request, key, out, is_text); }
void read_value(const Config& request, const RequestKey& key, bool& out) { read_as(request, key, out, is_flag); }
void read_value(const Config& request, const RequestKey& key, std::optional<bool>& out) { read_as(request, key, out, is_flag); }
void read_value(const Config& request, const RequestKey& key, double& out) { read_as(request, key, out, is_number); }
void read_value(const Config& request, const RequestKey& key, std::optional<double>& out) { read_as(request, key, out, is_number); }
void read_value(const Config& request, const RequestKey& key, int64_t& out) { read_as(request, key, out, is_integer<int64_t>); }
void read_value(const Config& request, const RequestKey& key, std::optional<int>& out) { read_as(request, key, out, is_integer<int>); }

void read_value(const Config& request, const RequestKey& key, std::vector<std::string>& out) {
  const nlohmann::json* value = request.find({key.key.c_str()});
  if (!value) return;
  out.clear();
  for (const nlohmann::json& item : value->is_array() ? *value : nlohmann::json::array({*value})) {
    if (!item.is_string()) refuse_value(key, *value);
    out.push_back(item.get<std::string>());
  }
}

void read_size(const Config& request, const RequestKey& key, std::string& out) {
  const nlohmann::json* value = request.find({key.key.c_str()});
  if (!value) return;
  if (value->is_number_integer())
    out = value->dump();
  else if (value->is_string() && *value != "")
    out = value->get<std::string>();
  else
    refuse_value(key, *value);
}

}  // namespace plimsoll
