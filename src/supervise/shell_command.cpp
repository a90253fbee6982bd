#include "supervise/shell_command.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "formats/command_line.h"
#include "formats/format.h"
#include "util/error.h"
#include "util/shell.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

bool is_shell(const std::string& program) {
  const std::string name = fs::path(program).filename().string();
  return name == "sh" || name == "bash" || name == "dash" || name == "zsh" || name == "ksh";
}

// "#!/bin/bash", "#!/usr/bin/env bash".
bool is_shell_script(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  std::ifstream in(path);
  std::string first;
  std::getline(in, first);
  if (!first.starts_with("#!")) return path.ends_with(".sh");
  const std::vector<std::string> words = split_at(first.substr(2), ' ');
  return std::any_of(words.begin(), words.end(), [](const std::string& w) { return is_shell(w); });
}

std::optional<ShellCommand> in_file(const std::vector<std::string>& command, size_t word) {
  if (!is_shell_script(command[word])) return {};
  try {
    ShellCommand out{word, true, read_document(command[word])};
    if (out.script.kind == Document::Kind::text) return out;
  } catch (const Error&) {  // not one that can be read
  }
  return {};
}

ShellCommand in_words(const std::vector<std::string>& command, size_t word) {
  ShellCommand out{word, false, parse_document(command[word], "shell.sh")};  // the name says that it is a script
  out.script.name = "the shell's text";
  return out;
}

bool is_redirection(const std::string& raw) {
  const size_t mark = raw.find_first_not_of("0123456789");
  return mark != std::string::npos && (raw[mark] == '<' || raw[mark] == '>');
}

}  // namespace

std::optional<ShellCommand> shell_command(const std::vector<std::string>& command) {
  const std::string program = command_document(command).value.value("program", "");
  const auto at = std::find(command.begin(), command.end(), program);
  if (program.empty() || at == command.end()) return {};
  size_t word = static_cast<size_t>(at - command.begin());
  if (!is_shell(program)) return in_file(command, word);
  for (++word; word < command.size() && command[word].size() > 1 && command[word][0] == '-'; ++word) {
    const bool text = command[word][1] != '-' && command[word].find('c') != std::string::npos;  // -c, -lc
    if (text) return word + 1 < command.size() ? std::optional(in_words(command, word + 1)) : std::nullopt;
  }
  return word < command.size() ? in_file(command, word) : std::nullopt;
}

std::string with_words(const Document& script, const std::vector<std::string>& added) {
  if (added.empty()) return script.text;
  const std::vector<ScriptCommand> commands = script_commands(script.text, script.name);
  const ScriptCommand* meant = nullptr;
  bool known = false;
  for (const ScriptCommand& c : commands) {
    if (c.document.value["program"] == "") continue;
    const bool trainer = format_of(c.document) != nullptr;
    if (trainer || !known) meant = &c, known = known || trainer;
  }
  if (!meant) throw Error("[run] " + script.name + " holds no command", "give the command itself behind --");
  size_t end = meant->words.front().end;
  for (const ShellWord& w : meant->words) {
    if (is_redirection(script.text.substr(w.begin, w.end - w.begin))) break;
    end = w.end;
  }
  std::string put;
  for (const std::string& word : added) put += " " + shell_quoted(word);
  return script.text.substr(0, end) + put + script.text.substr(end);
}

std::string with_file(const Document& script, const std::string& file, const std::string& instead) {
  std::string out = script.text;
  std::vector<ShellWord> places;
  for (const ScriptCommand& c : script_commands(script.text, script.name))
    for (const ShellWord& w : c.words)
      if (w.text == file || w.text.ends_with("=" + file)) places.push_back(w);
  for (auto it = places.rbegin(); it != places.rend(); ++it)
    out.replace(it->begin, it->end - it->begin, shell_quoted(it->text.substr(0, it->text.size() - file.size()) + instead));
  return out;
}

std::string training_line(const Document& script) {
  std::string out;
  for (const Document& d : script_documents(script.text, script.name))
    if (format_of(d)) out = d.text;
  return out;
}

std::vector<std::string> words_of(const Document& script) {
  std::vector<std::string> out;
  for (const ScriptCommand& c : script_commands(script.text, script.name))
    for (const ShellWord& w : c.words) out.push_back(w.text);
  return out;
}

void check_movable(const ShellCommand& shell) {
  if (!shell.file) return;
  for (const char* own : {"$0", "${0", "BASH_SOURCE"})
    if (shell.script.text.find(own) != std::string::npos)
      throw Error(
          "[run] " + shell.script.name + " asks for its own place (" + own + "), so a changed copy of it elsewhere may do something else",
          "let it take the values from variables: --set 'BATCH={batch}' and $BATCH in the script");
}

}  // namespace plimsoll
