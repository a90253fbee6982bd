// The words of a command line before they are parsed: the command that is meant, everyday spellings of flags (flag_aliases.h), and what
// cannot be, each refused with the nearest that can.
#pragma once

#include <string>
#include <vector>

#include "cli/app_tree.h"

namespace plimsoll {

struct CommandLine {
  std::vector<std::string> words;  // the command first; empty: nothing was typed
  std::vector<std::string> notes;  // for stderr, a sentence each
};

// `plimsoll gpt2` is `plimsoll estimate gpt2`, `plimsoll help plan` is `plimsoll plan --help`. What follows `--` is left alone. Throws an
// Error for a command or a flag that there is none of, and for words that a run has no place for.
CommandLine understood(const std::vector<std::string>& typed, const std::vector<CommandEntry>& tree);

// Whether -h or --help is among the words that are not a command's own.
bool asks_for_help(const std::vector<std::string>& words);

}  // namespace plimsoll
