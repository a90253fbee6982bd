// A training command as typed: environment, launcher, script, flags. `torchrun --nproc_per_node=4 train.py --config x.yaml`,
// `CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 2 train.py --a b`, `srun -N 2 python -m trainer`, or a script of a shell with
// such lines.
#pragma once

#include <string>
#include <vector>

#include "job/document.h"

namespace plimsoll {

// As a shell splits it: quotes, escapes, comments, lines that end in a backslash. Throws on an open quote.
std::vector<std::string> shell_words(const std::string& text);

// Every command of a script of a shell, each with the variables that were set before it; variables in words are replaced where their
// value is known. `#SBATCH` lines count as SLURM_NNODES and SLURM_NTASKS_PER_NODE.
std::vector<Document> script_documents(const std::string& script, const std::string& name);

// value: {"environment": {NAME: text}, "launcher": "torchrun"|"accelerate"|"deepspeed"|..., "launcher_flags": {...}, "processes": N per
// node, "nodes": N, "program": "train.py" or "module.name" or "axolotl", "arguments": ["train", ...], "flags": {name without dashes: value,
// true or list}}.
Document command_document(const std::vector<std::string>& words, const std::string& name = "command line");

}  // namespace plimsoll
