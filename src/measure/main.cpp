// plimsoll-measure: real training under a byte budget. `plimsoll measure` starts it, so that nothing else needs libtorch.
#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>

#include "cli/app_tree.h"
#include "cli/help.h"
#include "cli/parse_error.h"
#include "cli/words.h"
#include "measure/command.h"

namespace {

int report(const plimsoll::Error& e) {
  std::cerr << "plimsoll measure: " << e.what() << "\n";
  if (!e.hint().empty()) std::cerr << "  hint: " << e.hint() << "\n";
  return static_cast<int>(e.code());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace plimsoll;
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of write(), not the end
  CLI::App root("", "plimsoll");
  root.formatter(std::make_shared<HelpFormatter>());
  root.set_help_flag("-h", "the usual flags, on one screen");
  root.set_help_all_flag("--help", "all flags");
  CLI::App& app =
      *root.add_subcommand("measure", "Real training of the published systems under a byte budget, beside the simulation of the same job.");
  const std::function<ExitCode()> action = measure::set_up_measure(app);
  try {
    std::vector<std::string> arguments = measure::own_arguments({argv + 1, argv + argc});
    arguments.insert(arguments.begin(), "measure");
    const CommandLine line = understood(arguments, app_tree(root));
    root.parse(std::vector<std::string>(line.words.rbegin(), line.words.rend()));
    for (const std::string& note : line.notes) std::cerr << "note: " << note << "\n";
    return static_cast<int>(action());
  } catch (const CLI::ParseError& e) {
    return e.get_exit_code() == 0 ? root.exit(e) : report(error_of(root, e));
  } catch (const Error& e) {
    return report(e);
  } catch (const std::exception& e) {
    std::cerr << "plimsoll measure: internal error: " << e.what() << "\n  hint: please report this with the command line\n";
    return static_cast<int>(ExitCode::internal);
  }
}
