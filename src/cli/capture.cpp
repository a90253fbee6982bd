// `plimsoll capture -- python train.py`: becomes the python that the command names, with the module that captures (the package of
// python/plimsoll), so that output, signals and the exit code are the script's own.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct CaptureFlags {
  Words command, sizes, values, rules;
  std::string gpu, output;
  int64_t steps = 0;  // 0: as the module has it
  bool fixed = false;
};

// The user's command in its parts: "python", "-u", "train.py --lr 1e-3".
struct PythonCommand {
  std::string python;
  Words flags, script;
};

[[noreturn]] void refuse_capture(const std::string& what, const std::string& hint, ExitCode code = ExitCode::usage) {
  throw Error("[capture] " + what, hint, code);
}

bool names_python(const std::string& word) { return fs::path(word).filename().string().starts_with("python"); }

PythonCommand parts_of(const Words& words) {
  const std::string first = printable(words[0], 80);
  if (words[0].ends_with(".py")) refuse_capture(first + " is a script", "name its python: plimsoll capture -- python " + first);
  if (!names_python(words[0]))
    refuse_capture(fmt::format("'{}' is not a python", first),
                   "one process is captured: plimsoll capture -- python train.py ..., without torchrun, accelerate or srun before it");
  PythonCommand out{words[0], {}, {}};
  size_t at = 1;
  for (; at < words.size() && words[at].starts_with('-'); ++at) {
    if (words[at] == "-m" || words[at] == "-c") refuse_capture(fmt::format("python {} has no script", words[at]), "name the script's file");
    out.flags.push_back(words[at]);
    if ((words[at] == "-X" || words[at] == "-W") && at + 1 < words.size()) out.flags.push_back(words[++at]);
  }
  out.script.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  if (out.script.empty()) refuse_capture("the command names no script", "plimsoll capture -- python train.py ...");
  return out;
}

// In an installation share/plimsoll/python beside bin; in the repository python beside the folder of the build.
std::string package_folder() {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  Words looked_at;
  for (const fs::path& folder : {here.parent_path() / "share/plimsoll/python", here.parent_path() / "python"}) {
    if (fs::exists(folder / "plimsoll/capture/__main__.py", error)) return folder.string();
    looked_at.push_back(folder.string());
  }
  refuse_capture("the Python package is not installed: neither " + join(looked_at, " nor ") + " has plimsoll/capture",
                 "install Plimsoll as a whole (cmake --install), or run it from its repository", ExitCode::no_hardware);
}

std::vector<char*> pointers_to(Words& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// The exit code of a command; none: it cannot be started.
std::optional<int> exit_code_of_command(Words words) {
  pid_t pid = 0;
  if (posix_spawnp(&pid, words[0].c_str(), nullptr, nullptr, pointers_to(words).data(), environ) != 0) return std::nullopt;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void check_python(const PythonCommand& command) {
  const std::optional<int> code =
      exit_code_of_command({command.python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"});
  const std::string python = printable(command.python, 120);
  if (!code || *code == 127)
    refuse_capture(fmt::format("{} cannot be started", python), "name the python of your environment: venv/bin/python");
  if (*code != 0)
    refuse_capture(fmt::format("{} has no torch", python),
                   "the script runs in its own environment: activate it, or name its python: plimsoll capture -- venv/bin/python " +
                       printable(command.script[0], 80),
                   ExitCode::no_hardware);
}

Words module_words(const CaptureFlags& flags, const PythonCommand& command) {
  Words out{command.python};
  out.insert(out.end(), command.flags.begin(), command.flags.end());
  out.insert(out.end(), {"-m", "plimsoll.capture"});
  const auto add = [&](const char* flag, const std::string& value) { out.insert(out.end(), {flag, value}); };
  if (!flags.gpu.empty()) add("--gpu", flags.gpu);
  if (flags.steps > 0) add("--steps", std::to_string(flags.steps));
  for (const std::string& size : flags.sizes) add("--size", size);
  for (const std::string& value : flags.values) add("--value", value);
  for (const std::string& file : flags.rules) add("--rules", file);
  if (!flags.output.empty()) add("-o", flags.output);
  if (flags.fixed) out.emplace_back("--fixed");
  out.emplace_back("--");
  out.insert(out.end(), command.script.begin(), command.script.end());
  return out;
}

// Returns only by an Error.
ExitCode become_capture(const CaptureFlags& flags) {
  const PythonCommand command = parts_of(flags.command);
  const std::string folder = package_folder();
  check_python(command);
  const char* before = std::getenv("PYTHONPATH");
  setenv("PYTHONPATH", (folder + (before && *before ? ":" + std::string(before) : "")).c_str(), 1);
  std::cout << std::flush;
  Words words = module_words(flags, command);
  execvp(words[0].c_str(), pointers_to(words).data());
  refuse_capture(fmt::format("cannot start {}: {}", printable(command.python, 120), std::strerror(errno)),
                 "check that the file is executable");
}

}  // namespace

std::function<ExitCode()> set_up_capture(CLI::App& app) {
  auto flags = std::make_shared<CaptureFlags>();
  app.footer(
      "Runs your own script in its own Python for a few steps, without a GPU, and writes what it would allocate: sizes as formulas of\n"
      "batch, sequence length and the other sizes of its first batch. Then any command answers about it at other sizes.\n"
      "  plimsoll capture -- python train.py --config run.yaml\n"
      "  plimsoll capture --size batch=6 --size seq=160 -o train.trace -- venv/bin/python train.py\n"
      "  plimsoll estimate train.trace --batch 16 --seq 512 --gpu rtx-4090\n"
      "Exit codes: the script's own; 2 wrong usage, 6 no torch in that python.");
  app.add_option("command", flags->command, "-- and the command")->required()->type_name("-- COMMAND");
  app.add_option("--size", flags->sizes, "a size that may be asked about later, by its value in this run: batch=6 (repeatable)")
      ->type_name("NAME=N")
      ->allow_extra_args(false);
  app.add_option("--steps", flags->steps, "optimizer steps to capture (default 2)")->check(CLI::PositiveNumber)->type_name("N");
  app.add_option("--gpu", flags->gpu, "the card that torch.cuda looks like (default rtx-4090)")->type_name("NAME");
  app.add_flag("--fixed", flags->fixed, "no symbols: faster, and for this size alone");
  app.add_option("--value", flags->values, "what a line reads from the device: train.py:47=0.5 (repeatable)")
      ->type_name("PLACE=NUMBER")
      ->allow_extra_args(false);
  app.add_option("--rules", flags->rules, "a Python file with size rules of kernels that have none (repeatable)")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("-o,--output", flags->output, "the trace (default: the script's name with .trace)")->type_name("FILE");
  return [flags] { return become_capture(*flags); };
}

}  // namespace plimsoll
