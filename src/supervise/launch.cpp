#include "supervise/launch.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "supervise/run_folder.h"
#include "util/error.h"

namespace plimsoll {

namespace {

bool passes_words_on(const std::string& script) {
  const auto has = [&](const char* what) { return script.find(what) != std::string::npos; };
  return has("$@") || has("${@") || has("$*") || has("${*");
}

}  // namespace

std::string copy_in(const std::string& folder, const std::string& file, const std::string& text) {
  const std::string copy = folder + "/" + std::filesystem::path(file).filename().string();
  if (const std::string problem = write_whole(copy, text); !problem.empty())
    throw Error("[run] " + problem, "make room, or choose another folder: --state DIR");
  return copy;
}

void replace_file(std::vector<std::string>& command, const std::string& file, const std::string& copy) {
  for (std::string& word : command) {
    if (word == file) word = copy;
    if (word.ends_with("=" + file)) word = word.substr(0, word.size() - file.size()) + copy;
  }
}

void replace_script(std::vector<std::string>& command, const ShellCommand& shell, const std::string& text, const std::string& folder) {
  std::string& word = command[shell.word];
  if (!shell.file) {
    word = text;
    return;
  }
  check_movable(shell);
  const std::string copy = copy_in(folder, word, text);
  chmod(copy.c_str(), 0755);
  word = copy;
}

void add_words(Launch& launch, const std::string& folder, const std::vector<std::string>& added) {
  if (added.empty()) return;
  const auto shell = shell_command(launch.command);
  if (shell && !(shell->file && passes_words_on(shell->script.text)))
    replace_script(launch.command, *shell, with_words(shell->script, added), folder);
  else
    launch.command.insert(launch.command.end(), added.begin(), added.end());
}

}  // namespace plimsoll
