// A command as it is started: its words, variables on top of the environment, and what was written into copies of files that it names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "supervise/shell_command.h"

namespace plimsoll {

struct Launch {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::vector<std::string> written;  // "--micro_batch_size 4", "train.yaml: training.micro_batch_size 4"
};

// Writes `text` under the name of `file` into the folder and returns the copy's path. Throws an Error when it cannot be written.
std::string copy_in(const std::string& folder, const std::string& file, const std::string& text);
// The words with the copy wherever they name the file: FILE, --config=FILE.
void replace_file(std::vector<std::string>& command, const std::string& file, const std::string& copy);
// The shell's command with another script.
void replace_script(std::vector<std::string>& command, const ShellCommand& shell, const std::string& text, const std::string& folder);
// More words at the end of what trains: of the command, or of the one inside of a shell's script that does not pass on its own.
void add_words(Launch& launch, const std::string& folder, const std::vector<std::string>& added);

}  // namespace plimsoll
