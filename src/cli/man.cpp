#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "api/verbs.h"
#include "cli/app_tree.h"
#include "cli/command.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// Text for troff: nothing in it is a request or an escape.
std::string plain(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((i == 0 || text[i - 1] == '\n') && (c == '.' || c == '\'')) out += "\\&";
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return out;
}

std::string page_name(const CommandEntry& c, const CommandEntry& root) { return &c == &root ? root.name : root.name + "-" + c.name; }

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string synopsis(const CommandEntry& c, const CommandEntry& root) {
  std::string out = fmt::format(".B {}{}\n", root.name, &c == &root ? "" : " " + c.name);
  if (&c == &root) return out + ".I COMMAND\n[...]\n";
  for (const OptionEntry& o : c.options)
    if (o.positional) out += fmt::format(".RI [ \"{}\" ]\n", plain(o.value.empty() ? o.names[0] : o.value));
  return out + "[options]\n";
}

std::string options(const CommandEntry& c) {
  std::vector<std::string> groups;
  for (const OptionEntry& o : c.options)
    if (std::find(groups.begin(), groups.end(), o.group) == groups.end()) groups.push_back(o.group);
  std::string out;
  for (const std::string& group : groups) {
    out += fmt::format(".SH {}\n", plain(upper(group)));
    for (const OptionEntry& o : c.options) {
      if (o.group != group) continue;
      out += fmt::format(".TP\n.B {}{}\n{}\n", plain(join(o.names, ", ")),
                         o.value.empty() ? "" : fmt::format(" \\fI{}\\fR", plain(o.value)), plain(o.help));
      if (!o.choices.empty() && o.help.find(o.choices[0]) == std::string::npos)
        out += plain("One of: " + join(o.choices, ", ") + ".") + "\n";
    }
  }
  return out;
}

std::string manual(const CommandEntry& c, const std::vector<CommandEntry>& tree) {
  const CommandEntry& root = tree[0];
  std::string out = fmt::format(".TH {} 1 \"\" \"plimsoll {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}",
                                upper(page_name(c, root)), version(), plain(page_name(c, root)), plain(c.summary), synopsis(c, root));
  if (&c == &root) {
    out += ".SH COMMANDS\n";
    for (size_t i = 1; i < tree.size(); ++i)
      out += fmt::format(".TP\n.BR {}\\-{} (1)\n{}\n", root.name, tree[i].name, plain(tree[i].summary));
  }
  out += options(c);
  if (!c.footer.empty()) out += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", plain(c.footer));
  out += ".SH SEE ALSO\n";
  for (size_t i = 0; i < tree.size(); ++i)
    if (&tree[i] != &c) out += fmt::format(".BR {} (1){}\n", plain(page_name(tree[i], root)), i + 1 < tree.size() ? "," : "");
  return out;
}

void save_all(const std::vector<CommandEntry>& tree, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const CommandEntry& c : tree) {
    const std::string path = (std::filesystem::path(folder) / (page_name(c, tree[0]) + ".1")).string();
    std::ofstream out(path, std::ios::binary);
    out << manual(c, tree);
    out.close();
    if (!out) throw Error("[man] cannot write " + path, "is the folder writable?");
  }
}

}  // namespace

std::function<ExitCode()> set_up_man(CLI::App& app) {
  auto name = std::make_shared<std::string>(), all = std::make_shared<std::string>();
  app.footer(
      "Examples:\n"
      "  plimsoll man report | man -l -       the page of a command\n"
      "  plimsoll man --all man1              all of them as files, as `cmake --install` does");
  app.add_option("command", *name, "whose page (default: that of plimsoll itself)")->type_name("COMMAND");
  app.add_option("--all", *all, "write every page to this folder")->type_name("DIR");
  return [name, all, &app] {
    const std::vector<CommandEntry> tree = app_tree(root_of(app));
    if (!all->empty()) return save_all(tree, *all), ExitCode::ok;
    std::vector<std::string> names;
    for (size_t i = 0; i < tree.size(); ++i) {
      if (i == 0 ? name->empty() : tree[i].name == *name) return std::cout << manual(tree[i], tree), ExitCode::ok;
      if (i > 0) names.push_back(tree[i].name);
    }
    throw Error("[man] no command is called '" + printable(*name, 40) + "'", did_you_mean(*name, names), ExitCode::usage);
  };
}

}  // namespace plimsoll
