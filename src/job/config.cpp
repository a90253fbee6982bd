#include "job/config.h"

#include <fmt/format.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "job/config_log.h"

namespace plimsoll {

std::string dump(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

Config::Config() : values_(std::make_shared<nlohmann::json>(nlohmann::json::object())) {}

Config::Config(std::string source, nlohmann::json values)
    : source_(std::move(source)),
      values_(std::make_shared<nlohmann::json>(values.is_null() ? nlohmann::json::object() : std::move(values))) {
  if (!values_->is_object())
    throw Error(fmt::format("[{}] expected an object of settings, found {}", source_, values_->type_name()),
                "write it as {\"key\": value}");
}

const nlohmann::json* Config::find(std::initializer_list<const char*> keys) const {
  if (log_)
    for (const char* key : keys) log_->ask(key);
  for (const char* key : keys) {
    auto it = values().find(key);
    if (it != values().end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

bool Config::is_null(const char* key) const {
  if (log_) log_->ask(key);
  auto it = values().find(key);
  return it != values().end() && it->is_null();
}

void Config::wrong(const char* key, const std::string& expected) const {
  throw Error(fmt::format("[{}] {} is {}, expected {}", source_, key, dump(values().at(key)).substr(0, 80), expected),
              fmt::format("set {} to {}", key, expected));
}

const char* Config::present(std::initializer_list<const char*> keys, const nlohmann::json& fallback) const {
  const char* found = nullptr;
  if (log_)
    for (const char* key : keys) log_->ask(key);
  for (const char* key : keys) {
    auto it = values().find(key);
    if (it == values().end() || it->is_null()) continue;
    found = key;
    break;
  }
  if (log_) log_->add(found ? found : *keys.begin(), found != nullptr, [&] { return dump(found ? values().at(found) : fallback); });
  return found;
}

int64_t Config::integer(std::initializer_list<const char*> keys, int64_t fallback) const {
  const char* key = present(keys, fallback);
  if (!key) return fallback;
  const nlohmann::json& v = values().at(key);
  if (v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) wrong(key, "a number below 2^63");
  if (v.is_number_integer()) return v.get<int64_t>();
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63
  if (v.is_number_float() && std::abs(v.get<double>()) < kBeyond && v.get<double>() == std::trunc(v.get<double>()))
    return static_cast<int64_t>(v.get<double>());
  wrong(key, "a whole number");
}

namespace {
constexpr int64_t kLargestSize = int64_t{1} << 31;  // so that a product of two sizes always fits; larger products are checked
}  // namespace

int64_t Config::size(std::initializer_list<const char*> keys, int64_t fallback) const {
  const int64_t n = integer(keys, fallback);
  if (n > 0 && n <= kLargestSize) return n;
  const char* key = present(keys, nullptr);
  if (!key) return fallback;
  wrong(key, n <= 0 ? "a whole number above 0" : "at most 2147483648");
}

std::optional<int64_t> Config::optional_integer(std::initializer_list<const char*> keys) const {
  if (!present(keys, nullptr)) return std::nullopt;
  return integer(keys, 0);
}

double Config::number(std::initializer_list<const char*> keys, double fallback) const {
  const char* key = present(keys, fallback);
  if (!key) return fallback;
  if (!values().at(key).is_number()) wrong(key, "a number");
  return values().at(key).get<double>();
}

bool Config::flag(std::initializer_list<const char*> keys, bool fallback) const {
  const char* key = present(keys, fallback);
  if (!key) return fallback;
  if (!values().at(key).is_boolean()) wrong(key, "true or false");
  return values().at(key).get<bool>();
}

std::string Config::text(std::initializer_list<const char*> keys, const std::string& fallback) const {
  const char* key = present(keys, fallback);
  if (!key) return fallback;
  if (!values().at(key).is_string()) wrong(key, "a text");
  return values().at(key).get<std::string>();
}

void Config::require_divides(const char* divisor_key, int64_t divisor, const char* key, int64_t value) const {
  if (divisor > 0 && value % divisor == 0) return;
  throw Error(fmt::format("[{}] {} {} does not divide {} {}", source_, divisor_key, divisor, key, value),
              fmt::format("choose a {} that divides {}", divisor_key, value));
}

}  // namespace plimsoll
