#include "job/toml_reader.h"

#include <fmt/format.h>
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/impl/preprocessor.h>
// toml++ 3.3 asserts (or assumes, where asserts are off) what a wrong file can break: "[!" is such a one. Thrown, it is an error like
// others.
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT_ASSUME(expression)                              \
  do {                                                              \
    if (!(expression)) throw std::logic_error("not expected here"); \
  } while (false)
#include <toml++/toml.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "util/error.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

Json json_of(const toml::node& node) {
  if (const toml::table* table = node.as_table()) {
    Json out = Json::object();
    for (const auto& [key, value] : *table) out[std::string(key.str())] = json_of(value);
    return out;
  }
  if (const toml::array* array = node.as_array()) {
    Json out = Json::array();
    for (const toml::node& value : *array) out.push_back(json_of(value));
    return out;
  }
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_string()) return v->get();
  std::ostringstream date;  // dates and times: nothing that memory depends on
  date << "date";
  return date.str();
}

}  // namespace

Json parse_toml_text(const std::string& text, const std::string& name) {
  int depth = 0, deepest = 0;
  for (char c : text) {  // bounds the parser's recursion on hostile input
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') depth = std::max(0, depth - 1);
  }
  if (deepest > 200) throw Error("[toml] " + name + " nests deeper than 200", "this is not a configuration file");
  try {
    return json_of(toml::parse(text));
  } catch (const toml::parse_error& e) {
    throw Error(fmt::format("[toml] {}:{}: {}", name, e.source().begin.line, e.description()), "fix the TOML at that line");
  } catch (const std::logic_error& e) {
    throw Error(fmt::format("[toml] {}: {}", name, e.what()), "fix the TOML: a key or table has no name");
  }
}

bool looks_like_toml(const std::string& text) {
  std::istringstream lines(text.substr(0, 1 << 16));
  std::string line;
  static const std::regex kSection(R"(\s*\[\[?[A-Za-z0-9_.\-" ]+\]\]?\s*(#.*)?)"), kPair(R"(\s*[A-Za-z0-9_.\-]+\s*=\s*\S.*)");
  while (std::getline(lines, line)) {
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    if (line.size() > 400) return false;
    return std::regex_match(line, kSection) || std::regex_match(line, kPair);
  }
  return false;
}

}  // namespace plimsoll
