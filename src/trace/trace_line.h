// One line of a trace file: a JSON object, read by keys, with errors that name the file and the line. What the keys mean is trace_reader.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace plimsoll {

class TraceLine {
 public:
  TraceLine(const std::string& file, int64_t number) : file_(file), number_(number) {}
  void parse(std::string_view text);  // throws where it is no JSON object

  [[noreturn]] void refuse(const std::string& what) const;
  bool has(const char* key) const { return json_.contains(key); }
  void only(std::initializer_list<const char*> keys) const;  // refuses any other
  const nlohmann::json& value(const char* key) const;        // refuses where it is not there

  int64_t integer(const char* key, int64_t most, int64_t least = 0) const;
  std::string text(const char* key) const;
  std::string text_or_nothing(const char* key) const { return has(key) ? text(key) : ""; }
  bool flag(const char* key) const;

 private:
  const std::string& file_;
  int64_t number_;
  nlohmann::json json_;
};

}  // namespace plimsoll
