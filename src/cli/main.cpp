#include <malloc.h>

#include <iostream>

#include "api/verbs.h"
#include "cli/app_tree.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/parse_error.h"
#include "cli/standard_streams.h"
#include "cli/words.h"

namespace {

using namespace plimsoll;

int report(const Error& e) {
  std::cerr << "plimsoll: " << e.what() << "\n";
  if (!e.hint().empty()) std::cerr << "  hint: " << e.hint() << "\n";
  return static_cast<int>(e.code());
}

// Manual pages and completions read the flags from here, too.
void set_up(CLI::App& app, std::vector<std::pair<CLI::App*, std::function<ExitCode()>>>& actions) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h", "the usual flags, on one screen");
  app.set_help_all_flag("--help", "all flags");
  app.set_version_flag("-V,--version", std::string("plimsoll ") + version(), "which version this is");
  app.require_subcommand(0, 1);
  for (const Command& c : commands()) {
    CLI::App* sub = app.add_subcommand(c.name, c.summary);
    actions.emplace_back(sub, c.set_up(*sub));
  }
  app.footer(  // after the commands: each has its own
      "Examples:\n"
      "  plimsoll gpt2-xl --batch 4 --gpu rtx-4090      will it fit?\n"
      "  plimsoll axolotl.yaml --gpu rtx-4090           a trainer's file\n"
      "  plimsoll plan axolotl.yaml --gpu 4090 --diff   what to change in it\n"
      "  plimsoll explain train.log                     why it ran out of memory\n"
      "`plimsoll COMMAND -h` shows its usual flags, `plimsoll help COMMAND` all of them. Exit codes: docs/exit-codes.md.");
}

int run(const std::vector<std::string>& typed) {
  CLI::App app("Plimsoll: will this training run fit in memory, and what to change if not.", "plimsoll");
  std::vector<std::pair<CLI::App*, std::function<ExitCode()>>> actions;
  set_up(app, actions);
  try {
    if (!typed.empty() && typed[0] == "measure" && (has_measure() || !asks_for_help(typed)))
      return static_cast<int>(start_measure({typed.begin() + 1, typed.end()}));  // as it is
    CommandLine line = understood(typed, app_tree(app));
    std::vector<std::string> words(line.words.rbegin(), line.words.rend());  // CLI11 reads from the end
    app.parse(words);
    for (const std::string& note : line.notes) std::cerr << "note: " << note << "\n";
    for (auto& [sub, action] : actions)
      if (sub->parsed()) return static_cast<int>(action());
    return static_cast<int>(run_example());
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // help, version
    return report(error_of(app, e));
  } catch (const Error& e) {
    return report(e);
  } catch (const std::exception& e) {
    std::cerr << "plimsoll: internal error: " << e.what() << "\n  hint: please report this with the command line\n";
    return static_cast<int>(ExitCode::internal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_streams();
  // A plan simulates a hundred runs of some megabytes each: what one gave back is kept for the next.
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  const int code = run({argv + 1, argv + argc});
  return output_was_written() ? code : static_cast<int>(ExitCode::internal);
}
