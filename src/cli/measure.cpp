// `plimsoll measure` is another program, plimsoll-measure, so that this one does not need libtorch.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/command.h"

namespace plimsoll {

namespace {

std::string program_beside_this() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / "plimsoll-measure").string();
}

}  // namespace

bool has_measure() { return access(program_beside_this().c_str(), X_OK) == 0; }

ExitCode start_measure(const std::vector<std::string>& given) {
  const std::string program = program_beside_this();
  std::vector<std::string> words{program};
  words.insert(words.end(), given.begin(), given.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  if (errno == ENOENT)
    throw Error("[measure] " + program + " is not there: this build has no libtorch",
                "install libtorch-dev and libstb-dev and build again (cmake -DPLIMSOLL_MEASURE=ON); every other command works without it",
                ExitCode::no_hardware);
  throw Error("[measure] cannot start " + program + ": " + std::strerror(errno), "check that the file is executable");
}

std::function<ExitCode()> set_up_measure(CLI::App& app) {
  app.footer(
      "Examples:\n"
      "  plimsoll measure --model_size small --vram 8gb --seq 64 --steps 3   the trainer's own flags\n"
      "  plimsoll measure mamba-trainer-small --seq 64 --batch 2 --compare   beside the simulation\n"
      "It is a program of its own, plimsoll-measure, which needs libtorch and has flags of its own: `plimsoll measure --help` shows them\n"
      "where it is installed. To build it: libtorch-dev and libstb-dev, then cmake -DPLIMSOLL_MEASURE=ON (docs/measure.md).");
  app.prefix_command();
  return [&app] { return start_measure(app.remaining()); };
}

}  // namespace plimsoll
