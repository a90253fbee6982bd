// The micro-batch, accumulation and workers that a command of an unknown program says plainly: --batch_size 8, -b 8, train.batch_size=8.
// By their names alone: what the program does with them is not known, so whoever takes them says so.
#pragma once

#include <string>
#include <vector>

namespace plimsoll {

struct PlainSettings {
  std::vector<std::string> batch;     // templates (run_settings.h) of what may be the micro-batch: one is taken, several are a question
  std::vector<std::string> words;     // of the same: "--batch_size 8"
  std::string accumulation, workers;  // templates; empty: not in the command
};

PlainSettings plain_settings(const std::vector<std::string>& command);

}  // namespace plimsoll
