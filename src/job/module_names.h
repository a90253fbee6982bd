// A choice of modules by name, as PEFT's target_modules makes it: names that end with one of a list, or names that a regular
// expression matches, or every linear layer. The names of modules are those of the Python reference, joined by dots.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace plimsoll {

struct ModuleNames {
  bool all_linear = false;
  std::string pattern;             // matches the whole name; empty: by `names`
  std::vector<std::string> names;  // a whole name, or what follows a dot

  bool empty() const { return !all_linear && pattern.empty() && names.empty(); }
};

// A list of names, "all-linear", one name, or a regular expression (a text that no module name can be). Throws an Error.
ModuleNames parse_module_names(const nlohmann::json& value, const std::string& source);
nlohmann::ordered_json to_json(const ModuleNames& names);
std::string to_string(const ModuleNames& names);

// Whether `module` is `name` or ends with it after a dot.
bool ends_with_name(const std::string& module, const std::string& name);
// `module` and every module it is in: "a.b.c", "a.b", "a".
std::vector<std::string> with_parents(const std::string& module);

// A regular expression over whole names. Throws an Error when the text is none.
class NamePattern {
 public:
  NamePattern() = default;  // matches nothing
  explicit NamePattern(const std::string& text);
  bool matches(const std::string& module) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace plimsoll
