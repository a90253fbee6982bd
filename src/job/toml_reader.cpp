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

#include "job/placed.h"
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

// What toml++ throws becomes an Error with the line.
toml::table parsed(const std::string& text, const std::string& name) {
  int depth = 0, deepest = 0;
  for (char c : text) {  // bounds the parser's recursion on hostile input
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') depth = std::max(0, depth - 1);
  }
  if (deepest > 200) throw Error("[toml] " + name + " nests deeper than 200", "this is not a configuration file");
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& e) {
    throw Error(fmt::format("[toml] {}:{}: {}", name, e.source().begin.line, e.description()), "fix the TOML at that line");
  } catch (const std::logic_error& e) {
    throw Error(fmt::format("[toml] {}: {}", name, e.what()), "fix the TOML: a key or table has no name");
  }
}

// toml++ counts lines and code points from 1.
class Positions {
 public:
  explicit Positions(const std::string& text) : text_(text), lines_{0} {
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') lines_.push_back(i + 1);
  }
  size_t operator()(const toml::source_position& p) const {
    if (p.line < 1 || p.line > lines_.size()) return text_.size();
    size_t at = lines_[p.line - 1];
    for (toml::source_index column = 1; column < p.column && at < text_.size(); ++column) do
        ++at;
      while (at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80);
    return at;
  }

 private:
  const std::string& text_;
  std::vector<size_t> lines_;
};

Placed placed(const toml::node& node, const std::string& text, const Positions& position) {
  Placed p;
  p.begin = position(node.source().begin);
  p.end = std::max(p.begin, position(node.source().end));
  if (const toml::table* table = node.as_table()) {
    p.kind = Placed::Kind::mapping;
    p.flow = table->is_inline();
    p.header = !p.flow && p.begin < text.size() && text[p.begin] == '[';
    for (const auto& [key, value] : *table)
      p.members.push_back({std::string(key.str()), position(key.source().begin), placed(value, text, position)});
  } else if (const toml::array* array = node.as_array()) {
    p.kind = Placed::Kind::sequence;
    p.flow = true;
    for (const toml::node& value : *array) p.members.push_back({std::to_string(p.members.size()), p.begin, placed(value, text, position)});
  }
  return p;
}

}  // namespace

Json parse_toml_text(const std::string& text, const std::string& name) { return json_of(parsed(text, name)); }

Placed place_toml(const std::string& text, const std::string& name) { return placed(parsed(text, name), text, Positions(text)); }

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
