// A training command inside of a shell's: `bash -c 'cd x && python train.py ...'`, `bash train.sh`, `./train.sh`. What is to be changed is
// in the text of the script, not in the words of the command.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/document.h"

namespace plimsoll {

struct ShellCommand {
  size_t word = 0;    // of the command: the text itself, or the file's name
  bool file = false;  // else the text of -c
  Document script;
};

// None when the command is no shell's, or the file cannot be read.
std::optional<ShellCommand> shell_command(const std::vector<std::string>& command);

// The script with more words for its training command: the last that is one of a known trainer, else its last. Throws an Error where it
// has none.
std::string with_words(const Document& script, const std::vector<std::string>& added);

// The script with another path where its words name `file`.
std::string with_file(const Document& script, const std::string& file, const std::string& instead);

// Its training command on one line, as a shell is told it; empty when it has none that is known.
std::string training_line(const Document& script);

// Words of all its commands, without quotes.
std::vector<std::string> words_of(const Document& script);

// Throws an Error when a copy of the script in another folder would not do the same, because it asks for its own place.
void check_movable(const ShellCommand& shell);

}  // namespace plimsoll
