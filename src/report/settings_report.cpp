#include "report/settings_report.h"

#include <fmt/format.h>

#include <cctype>
#include <nlohmann/json.hpp>

#include "job/settings.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string default_text(const Setting& s) {
  const Json& value = default_of(s);
  if (value.empty() || value == "") return "";
  return value.is_string() ? value.get<std::string>() : dump(value);
}

// A switch has no value on the command line, and true or false in a file; "=" is one that may have a value.
std::string value_text(const Setting& s) {
  const std::string value = s.value;
  if (value.empty()) return "true|false";
  return value.starts_with('=') ? "true|false|" + value.substr(1) : value;
}

const char* program_text(Programs p) { return p == Programs::both ? "PyTorch, JAX" : p == Programs::jax ? "JAX" : "PyTorch"; }

std::string title(SettingGroup g) {
  std::string out = to_string(g);
  out[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(out[0])));
  return out;
}

}  // namespace

Json settings_json() {
  Json out = Json::array();
  for (const Setting& s : job_settings())
    out.push_back({{"key", s.key},
                   {"flag", flag_of(s)},
                   {"value", s.value},
                   {"default", default_of(s)},
                   {"group", to_string(s.group)},
                   {"programs", to_string(s.programs)},
                   {"help", s.help}});
  return out;
}

doc::Document settings_document() {
  doc::Document out;
  const Setting* before = nullptr;
  const auto code = [](const std::string& text) { return text.empty() ? doc::Text() : doc::code(text); };
  for (const Setting& s : job_settings()) {
    if (!before || before->group != s.group)
      doc::append(out.blocks, {doc::Heading{title(s.group), {}, 2}, doc::Table{{{"key"}, {"value"}, {"default"}, {"for"}, {"meaning"}}}});
    std::get<doc::Table>(out.blocks.back())
        .rows.push_back({{doc::code(s.key), code(value_text(s)), code(default_text(s)), program_text(s.programs), s.help}});
    before = &s;
  }
  return out;
}

}  // namespace plimsoll
