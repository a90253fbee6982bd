#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "api/list.h"
#include "cli/app_tree.h"
#include "cli/command.h"
#include "util/text.h"

namespace plimsoll {

namespace {

std::vector<std::string> devices() {
  std::vector<std::string> out = listed_names("gpus");
  out.insert(out.begin(), "this");
  return out;
}

bool is_run(const OptionEntry& o) { return o.positional && o.names[0] == "input"; }

std::vector<std::string> words_of(const OptionEntry& o) {
  if (!o.choices.empty()) return o.choices;
  if (o.names[0] == "--gpu") return devices();
  return is_run(o) ? listed_names("presets") : std::vector<std::string>{};
}

// Inside single quotes of a shell.
std::string quoted(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

std::string names_of(const CommandEntry& c) {
  std::vector<std::string> out;
  for (const OptionEntry& o : c.options)
    if (!o.positional) out.insert(out.end(), o.names.begin(), o.names.end());
  return join(out, " ");
}

std::string bash(const std::vector<CommandEntry>& tree) {
  std::vector<std::string> names;
  for (size_t i = 1; i < tree.size(); ++i) names.push_back(tree[i].name);
  std::string out =
      "# bash completion of plimsoll; made by: plimsoll completion bash\n_plimsoll() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= word\n"
      "  COMPREPLY=()\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case $word in\n      " +
      join(names, "|") +
      ") command=$word; break ;;\n      --) return ;;\n    esac\n  done\n"
      "  case \"$command $prev\" in\n";
  for (const CommandEntry& c : tree)
    for (const OptionEntry& o : c.options) {
      if (o.positional || o.value.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& n : o.names) patterns.push_back(quoted((&c == &tree[0] ? "" : c.name) + " " + n));
      const std::vector<std::string> words = words_of(o);
      out += fmt::format("    {}) COMPREPLY=($(compgen {} -- \"$cur\")); return ;;\n", join(patterns, "|"),
                         words.empty() ? "-f" : "-W " + quoted(join(words, " ")));
    }
  out += "  esac\n  case $command in\n";
  for (const CommandEntry& c : tree) {
    std::vector<std::string> words;
    for (const OptionEntry& o : c.options)
      if (o.positional) words = words_of(o);
    if (&c == &tree[0]) words = names;
    out += fmt::format("    {}) words={}; [[ $cur == -* ]] && words={} ;;\n", &c == &tree[0] ? "''" : c.name, quoted(join(words, " ")),
                       quoted(names_of(c)));
  }
  return out +
         "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "  [[ -n $command && $cur != -* ]] && COMPREPLY+=($(compgen -f -- \"$cur\"))\n}\n"
         "complete -o filenames -F _plimsoll plimsoll\n";
}

std::string zsh(const std::vector<CommandEntry>& tree) {
  const auto escaped = [](std::string text, const char* special) {
    for (size_t at = 0; (at = text.find_first_of(special, at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
    return text;
  };
  std::string out =
      "#compdef plimsoll\n# zsh completion of plimsoll; made by: plimsoll completion zsh\n_plimsoll() {\n  local -a commands\n  "
      "commands=(\n";
  for (size_t i = 1; i < tree.size(); ++i) out += "    " + quoted(tree[i].name + ":" + tree[i].summary) + "\n";
  out +=
      "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n  local command=$words[2]\n  shift words; (( CURRENT-- "
      "))\n  case $command in\n";
  for (size_t i = 1; i < tree.size(); ++i) {
    out += fmt::format("    {})\n      _arguments -s \\\n", tree[i].name);
    for (const OptionEntry& o : tree[i].options) {
      const std::vector<std::string> words = words_of(o);
      const std::string action = words.empty() ? "_files"
                                 : is_run(o)   ? "{ _alternative \"runs:run:(" + join(words, " ") + ")\" \"files:file:_files\" }"
                                               : "(" + join(words, " ") + ")";
      const std::string help = escaped(o.help, "[]:\\");
      if (o.positional) {
        out += "        " + quoted(fmt::format("*:{}:{}", o.names[0], action)) + " \\\n";
        continue;
      }
      for (const std::string& n : o.names)
        out += "        " +
               quoted(o.value.empty() ? fmt::format("{}[{}]", n, help)
                                      : fmt::format("{}[{}]:{}:{}", n, help, escaped(o.value, "[]:\\"), action)) +
               " \\\n";
    }
    out += "        && return ;;\n";
  }
  return out + "  esac\n}\n_plimsoll \"$@\"\n";
}

std::string fish(const std::vector<CommandEntry>& tree) {
  std::string out = "# fish completion of plimsoll; made by: plimsoll completion fish\n";
  for (size_t i = 1; i < tree.size(); ++i)
    out += fmt::format("complete -c plimsoll -n __fish_use_subcommand -f -a {} -d {}\n", tree[i].name, quoted(tree[i].summary));
  for (size_t i = 1; i < tree.size(); ++i)
    for (const OptionEntry& o : tree[i].options) {
      const std::vector<std::string> words = words_of(o);
      std::string line = fmt::format("complete -c plimsoll -n '__fish_seen_subcommand_from {}'", tree[i].name);
      for (const std::string& n : o.names)
        if (!o.positional) line += n.starts_with("--") ? " -l " + n.substr(2) : " -s " + n.substr(1);
      if (o.positional && words.empty()) continue;
      if (!words.empty()) line += (is_run(o) ? " -a " : " -xa ") + quoted(join(words, " "));
      if (words.empty() && !o.value.empty()) line += " -r";
      out += line + " -d " + quoted(o.help) + "\n";
    }
  return out;
}

}  // namespace

std::function<ExitCode()> set_up_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.footer(
      "Examples:\n"
      "  source <(plimsoll completion bash)                                              in this shell\n"
      "  plimsoll completion bash > ~/.local/share/bash-completion/completions/plimsoll  for good\n"
      "  plimsoll completion zsh > ~/.zfunc/_plimsoll\n"
      "  plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish\n"
      "`cmake --install` puts all three where the shells look.");
  app.add_option("shell", *shell, "bash, zsh or fish")->check(CLI::IsMember({"bash", "zsh", "fish"}))->required()->type_name("SHELL");
  return [shell, &app] {
    const std::vector<CommandEntry> tree = app_tree(root_of(app));
    std::cout << (*shell == "bash" ? bash(tree) : *shell == "zsh" ? zsh(tree) : fish(tree));
    return ExitCode::ok;
  };
}

}  // namespace plimsoll
