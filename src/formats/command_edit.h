// A training command, or the last one of a script that a reader knows, with other flags and variables. Line continuations, quotes, comments
// and every other word stay as they are.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/placed.h"

namespace plimsoll {

// How a trainer's command says a setting that it does not say yet.
enum class FlagStyle : uint8_t {
  none,      // not at all: its file does
  values,    // --key value, also --key true (argparse with types, HfArgumentParser)
  switches,  // --key value; what is true or false is there or is not (argparse's store_true)
  dashes,    // the same, as --key-name (click)
  dotted,    // the same, as --section.key (tyro)
  words,     // section.key=value (Hydra, OmegaConf)
};

// One line of words: "--per_device_train_batch_size 2 --bf16 true". Empty for what no flag says: a switch that is off, a
// value that goes (of words that is "~optimizer.fused"), a list where flags hold one text.
std::string flag_words(const KeyEdit& edit, FlagStyle style);

// `script`: which of its commands is meant is `command`, counted as script_commands does. Throws an Error that says why where that cannot
// be done: a value that comes from somewhere else, a flag that is there twice.
std::string edit_flags(const std::string& script, const std::string& name, size_t command, FlagStyle style,
                       const std::vector<KeyEdit>& edits);

// The variable where the command or a line before it sets it; else as a line `export NAME=value` above the command.
std::string edit_environment(const std::string& script, const std::string& name, size_t command, const std::string& variable,
                             const std::string& value);

}  // namespace plimsoll
