// The flags that describe a run, for every command that simulates one: a model or a job file, and a flag for each setting.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "api/request.h"

namespace plimsoll {

// The group of the flags that nearly every run needs, and those of all others in the order of help.
inline constexpr const char* kCommonGroup = "Common";
const std::vector<std::string>& job_flag_groups();

struct JobFlags {
  std::vector<std::string> input;  // a model, a file, a directory, or the words of a training command
  std::string job_file, as;
  std::map<std::string, std::string> values;        // setting -> text of its flag; a switch is "true", or "false" by --ema=false
  std::vector<std::string> config, optimizer_args;  // KEY=VALUE

  void add_input_to(CLI::App& app);  // what is positional
  void add_to(CLI::App& app);        // the flags
  JobRequest request() const;
  Job job() const { return request().job(); }
};

}  // namespace plimsoll
