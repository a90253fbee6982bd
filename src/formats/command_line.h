// A training command as typed: environment, launcher, script, flags. `torchrun --nproc_per_node=4 train.py --config x.yaml`,
// `CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 2 train.py --a b`, `srun -N 2 python -m trainer`, or a script of a shell with
// such lines.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "formats/document.h"

namespace plimsoll {

// As a shell splits it: quotes, escapes, comments, lines that end in a backslash. Throws on an open quote.
std::vector<std::string> shell_words(const std::string& text);

// A word without its quotes, and its place in the text with them.
struct ShellWord {
  std::string text;
  size_t begin = 0, end = 0;
};
std::vector<ShellWord> placed_words(const std::string& text);

// What the words of a command are, by their numbers.
struct FlagWords {
  size_t flag = 0;
  std::vector<size_t> values;  // none: a switch, or --flag=value in one word
  int times = 1;               // more than once, the last of them
};
struct CommandWords {
  std::map<std::string, size_t> environment;
  std::map<std::string, FlagWords> launcher_flags, flags;
  std::vector<size_t> arguments;
};

// A command of a script; its words are as they are written, variables too.
struct ScriptCommand {
  Document document;  // without a program: variables alone
  std::vector<ShellWord> words;
  CommandWords places;
};
std::vector<ScriptCommand> script_commands(const std::string& script, const std::string& name);

// Every command of a script of a shell, each with the variables that were set before it; variables in words are replaced where their
// value is known. `#SBATCH` lines count as SLURM_NNODES and SLURM_NTASKS_PER_NODE.
std::vector<Document> script_documents(const std::string& script, const std::string& name);

// value: {"environment": {NAME: text}, "launcher": "torchrun"|"accelerate"|"deepspeed"|..., "launcher_flags": {...}, "processes": N per
// node, "nodes": N, "program": "train.py" or "module.name" or "axolotl", "arguments": ["train", ...], "flags": {name without dashes: value,
// true or list}}.
Document command_document(const std::vector<std::string>& words, const std::string& name = "command line", CommandWords* places = nullptr);

// Whether a flag of a trainer takes all the words up to the next flag (argparse's nargs).
bool takes_many(const std::string& flag);

}  // namespace plimsoll
