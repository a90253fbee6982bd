#include "cli/app_tree.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "util/text.h"

namespace plimsoll {

namespace {

// Words that one may type: "fp32|amp|bf16", or what a check lists: "WHEN:{auto,always,never}".
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{'), close = type.rfind('}');
  const bool listed = open != std::string::npos && close != std::string::npos && close > open;
  const std::vector<std::string> words = listed ? split_at(type.substr(open + 1, close - open - 1), ',') : split_at(type, '|');
  const bool plain = std::all_of(words.begin(), words.end(), [](const std::string& w) {
    return !w.empty() && std::all_of(w.begin(), w.end(), [](char c) {
      return std::islower(static_cast<unsigned char>(c)) || std::isdigit(static_cast<unsigned char>(c)) || c == '_' || c == '-';
    });
  });
  return plain && (listed || words.size() > 1) ? words : std::vector<std::string>{};
}

// What a check adds to a type is the parser's: "N:INT in [0 - 20]" is "N", "WHEN:{auto,always,never}" is what it lists.
std::string shown_value(const std::string& type, const std::vector<std::string>& choices) {
  const size_t check = std::min({type.find(":{"), type.find(":INT"), type.find(":UINT"), type.find(":FLOAT"), type.find(":POSITIVE"),
                                 type.find(":NONNEGATIVE"), type.find(":NUMBER"), type.size()});
  return type.find(":{") < type.size() && !choices.empty() ? join(choices, "|") : type.substr(0, check);
}

OptionEntry entry_of(const CLI::Option& o) {
  OptionEntry e;
  for (const std::string& n : o.get_snames()) e.names.push_back("-" + n);
  for (const std::string& n : o.get_lnames()) e.names.push_back("--" + n);
  e.positional = e.names.empty();
  if (e.positional) e.names.push_back(o.get_name(true));
  const std::string type = o.get_type_name();
  e.takes_value = o.get_items_expected_max() > 0;
  e.needs_value = o.get_items_expected_min() > 0;
  e.choices = choices_in(type);
  if (e.takes_value || type.starts_with("[")) e.value = shown_value(type, e.choices);
  e.help = o.get_description();
  e.group = o.get_group();
  if (e.names[0] == "-h" || e.names.back() == "--help" || e.names.back() == "--version") e.group = "Help";
  return e;
}

CommandEntry command_of(const CLI::App& app) {
  CommandEntry c{app.get_name(), app.get_description(), app.get_footer(), {}};
  for (const CLI::Option* o : app.get_options())
    if (!o->get_group().empty()) c.options.push_back(entry_of(*o));
  return c;
}

}  // namespace

const CLI::App& root_of(const CLI::App& app) {
  const CLI::App* at = &app;
  while (at->get_parent()) at = at->get_parent();
  return *at;
}

CommandEntry entry_of(const CLI::App& app) { return command_of(app); }

std::vector<CommandEntry> app_tree(const CLI::App& root) {
  std::vector<CommandEntry> out{command_of(root)};
  for (const CLI::App* sub : root.get_subcommands({})) out.push_back(command_of(*sub));
  return out;
}

}  // namespace plimsoll
