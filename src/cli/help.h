// The help of a command as text: examples first, then its flags in groups, wrapped at the width of the terminal. Short (-h) is one screen
// with the flags that most people use; long (--help) is all of it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/app_tree.h"

namespace plimsoll {

enum class HelpLength { one_screen, all };

// `tree[0]` is the program itself: its help lists the commands by the question that they answer.
std::string help_text(const CommandEntry& command, const std::vector<CommandEntry>& tree, HelpLength length, size_t width);

class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

}  // namespace plimsoll
