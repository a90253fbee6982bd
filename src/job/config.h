// A model's own configuration (Hugging Face config.json, torchvision arguments): typed look-ups with class defaults and
// messages that name the key, the value and what was expected.
#pragma once

#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "util/error.h"

namespace plimsoll {

// JSON as text; bytes that are not UTF-8 become U+FFFD instead of an exception.
std::string dump(const nlohmann::ordered_json& value, int indent = -1);

class ConfigLog;

class Config {
 public:
  Config();
  Config(std::string source, nlohmann::json values);

  // The first of `keys` that is present (a key and its aliases), else the default. Sizes are 1 to 2^31.
  int64_t size(std::initializer_list<const char*> keys, int64_t fallback) const;
  int64_t integer(std::initializer_list<const char*> keys, int64_t fallback) const;
  double number(std::initializer_list<const char*> keys, double fallback) const;
  bool flag(std::initializer_list<const char*> keys, bool fallback) const;
  std::string text(std::initializer_list<const char*> keys, const std::string& fallback) const;
  // null and absent are the same: no value.
  std::optional<int64_t> optional_integer(std::initializer_list<const char*> keys) const;
  const nlohmann::json* find(std::initializer_list<const char*> keys) const;  // null values are not found

  bool is_null(const char* key) const;  // given, as null: no value where the class has a default

  // From now on lookups in this and its copies are written down, from whichever thread they come.
  void watch(std::shared_ptr<ConfigLog> log) { log_ = std::move(log); }

  const std::string& source() const { return source_; }
  const nlohmann::json& values() const { return *values_; }
  // Throws unless a divides b.
  void require_divides(const char* divisor_key, int64_t divisor, const char* key, int64_t value) const;

 private:
  const char* present(std::initializer_list<const char*> keys, const nlohmann::json& fallback) const;  // null: none of them
  [[noreturn]] void wrong(const char* key, const std::string& expected) const;
  std::string source_ = "config";
  std::shared_ptr<const nlohmann::json> values_;  // never null
  std::shared_ptr<ConfigLog> log_;                // null: nobody wants to know
};

}  // namespace plimsoll
