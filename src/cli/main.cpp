#include <malloc.h>

#include <cstdio>
#include <iostream>
#include <string_view>

#include "api/verbs.h"
#include "cli/command.h"

namespace {

using namespace plimsoll;

int report(const Error& e) {
  std::cerr << "plimsoll: " << e.what() << "\n";
  if (!e.hint().empty()) std::cerr << "  hint: " << e.hint() << "\n";
  return static_cast<int>(e.code());
}

}  // namespace

int main(int argc, char** argv) {
  // A plan simulates a hundred runs of some megabytes each: what one gave back is kept for the next.
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  CLI::App app("Plimsoll: will this training run fit in memory, what takes it, and what to change.", "plimsoll");
  app.set_version_flag("--version", std::string("plimsoll ") + version());
  app.footer("Run `plimsoll COMMAND --help` for details. Exit codes: docs/exit-codes.md.");
  app.require_subcommand(0, 1);
  std::vector<std::pair<CLI::App*, std::function<ExitCode()>>> actions;
  for (const Command& c : commands()) {
    CLI::App* sub = app.add_subcommand(c.name, c.summary);
    actions.emplace_back(sub, c.set_up(*sub));
  }
  try {
    if (argc > 1 && std::string_view(argv[1]) == "measure") return static_cast<int>(start_measure({argv + 2, argv + argc}));  // as it is
  } catch (const Error& e) {
    return report(e);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  try {
    for (auto& [sub, action] : actions)
      if (sub->parsed()) return static_cast<int>(action());
    return static_cast<int>(run_example());
  } catch (const Error& e) {
    return report(e);
  } catch (const std::exception& e) {
    std::cerr << "plimsoll: internal error: " << e.what() << "\n  hint: please report this with the command line\n";
    return static_cast<int>(ExitCode::internal);
  }
}
