// How a layout is started: the command of each of its nodes, and whole files of launchers and trainers that say it. What such a file has
// no word for stands in a comment of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/layouts.h"

namespace plimsoll {

// The command of one node: torchrun with what the program must do, torchtitan with its flags, or
// Megatron's script with its arguments. `node`: devices of one.
std::string launch_line(const Layout& layout, int64_t node);

// How `plimsoll estimate` is asked about it: with the flags that the plan was asked with.
std::string estimate_command(const Layout& layout);

struct LayoutFile {
  const char* name;                    // for --generate
  bool (*says)(const Layout& layout);  // whether it can say that layout
  std::string (*text)(const Layout& layout, int64_t node);
};
const std::vector<LayoutFile>& layout_files();
// Throws an Error with the names that are known.
const LayoutFile& layout_file(const std::string& name);

// One value of torchtitan's configuration: of its file, or a flag --section.key.
struct TorchtitanKey {
  const char *section, *key;
  nlohmann::json value;
};
std::vector<TorchtitanKey> torchtitan_keys(const Layout& layout);

// pretrain_gpt.py's arguments for the model itself.
std::vector<std::string> megatron_model_arguments(const Job& job);

}  // namespace plimsoll
