#include "job/module_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "job/config.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr size_t kLongestPattern = 1000;

bool is_plain_name(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
}

}  // namespace

ModuleNames parse_module_names(const nlohmann::json& value, const std::string& source) {
  ModuleNames out;
  if (value.is_array()) {
    for (const nlohmann::json& name : value) {
      if (!name.is_string() || !is_plain_name(name.get<std::string>()))
        throw Error(fmt::format("[{}] {} is not the name of a module", source, dump(name).substr(0, 80)), "e.g. [q_proj, v_proj]");
      out.names.push_back(name.get<std::string>());
    }
    return out;
  }
  if (!value.is_string() || value.get<std::string>().empty())
    throw Error(fmt::format("[{}] {} does not name modules", source, dump(value).substr(0, 80)), "e.g. [q_proj, v_proj], or all-linear");
  const std::string text = value.get<std::string>();
  if (lower(text) == "all-linear") {
    out.all_linear = true;
  } else if (is_plain_name(text)) {
    out.names.push_back(text);
  } else {
    NamePattern{text};
    out.pattern = text;
  }
  return out;
}

nlohmann::ordered_json to_json(const ModuleNames& m) {
  if (m.all_linear) return "all-linear";
  if (!m.pattern.empty()) return m.pattern;
  return m.names;
}

std::string to_string(const ModuleNames& m) {
  if (m.all_linear) return "all-linear";
  return m.pattern.empty() ? join(m.names, ", ") : m.pattern;
}

bool ends_with_name(const std::string& module, const std::string& name) {
  if (module.size() < name.size() || module.compare(module.size() - name.size(), name.size(), name) != 0) return false;
  return module.size() == name.size() || module[module.size() - name.size() - 1] == '.';
}

std::vector<std::string> with_parents(const std::string& module) {
  std::vector<std::string> out;
  for (size_t end = module.size(); end != std::string::npos && end != 0; end = module.rfind('.', end - 1))
    out.push_back(module.substr(0, end));
  return out;
}

struct NamePattern::Compiled {
  std::regex regex;
};

NamePattern::NamePattern(const std::string& text) {
  if (text.size() > kLongestPattern)
    throw Error(fmt::format("[modules] a regular expression of {} characters", text.size()), "give a list of names");
  try {
    compiled_ = std::make_shared<const Compiled>(Compiled{std::regex(text)});
  } catch (const std::regex_error& e) {
    throw Error(fmt::format("[modules] '{}' is not a regular expression: {}", text, e.what()),
                "write it as in ECMAScript, or give a list of names");
  }
}

bool NamePattern::matches(const std::string& module) const { return compiled_ && std::regex_match(module, compiled_->regex); }

}  // namespace plimsoll
