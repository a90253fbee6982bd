// The command line of real training.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "util/error.h"

namespace plimsoll::measure {

// Flags of the published trainers (--model_size small --vram 8gb, --config x.json, --training_preset fast) become the command that they are
// flags of, which is read like any other: {"--steps", "3", "--", "python", "train.py", "--model_size", "small"}.
std::vector<std::string> own_arguments(const std::vector<std::string>& arguments);

std::function<ExitCode()> set_up_measure(CLI::App& app);

}  // namespace plimsoll::measure
