// The commands and their options as plain data, read from the tree that parses them: what manual pages and completions are made of, so
// that they are never stale.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace plimsoll {

struct OptionEntry {
  std::vector<std::string> names;  // "-h", "--help"; of a positional argument its name
  std::string value;               // as people write it: "N", "auto|always|never", "[=full|every=K]"; empty: a switch
  std::string help, group;
  std::vector<std::string> choices;  // all that may follow; empty: anything
  bool positional = false;
  bool takes_value = false, needs_value = false;  // a word of its own behind the flag, which may or must be there
};

struct CommandEntry {
  std::string name, summary, footer;
  std::vector<OptionEntry> options;
};

// The root first (its name is that of the program), then its commands in order.
std::vector<CommandEntry> app_tree(const CLI::App& root);
CommandEntry entry_of(const CLI::App& app);
const CLI::App& root_of(const CLI::App& app);

}  // namespace plimsoll
