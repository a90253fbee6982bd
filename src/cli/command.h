// One file per command; commands.cpp lists them. A command sets up its flags and returns what to run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "api/form.h"
#include "util/error.h"

namespace plimsoll {

struct Command {
  const char* name;
  const char* summary;
  // Declares flags on `app` and returns the action, which prints its result on stdout and returns the exit code.
  std::function<std::function<ExitCode()>(CLI::App& app)> set_up;
};

const std::vector<Command>& commands();

std::function<ExitCode()> set_up_estimate(CLI::App& app);
std::function<ExitCode()> set_up_compare(CLI::App& app);
std::function<ExitCode()> set_up_explain(CLI::App& app);
std::function<ExitCode()> set_up_report(CLI::App& app);
std::function<ExitCode()> set_up_plan(CLI::App& app);
std::function<ExitCode()> set_up_ai_toolkit(CLI::App& app);
std::function<ExitCode()> set_up_measure(CLI::App& app);
bool has_measure();  // whether that program is beside this one
// Becomes the program that trains; returns only by an Error.
ExitCode start_measure(const std::vector<std::string>& arguments);
std::function<ExitCode()> set_up_score(CLI::App& app);
std::function<ExitCode()> set_up_replay(CLI::App& app);
std::function<ExitCode()> set_up_run(CLI::App& app);
std::function<ExitCode()> set_up_capture(CLI::App& app);
std::function<ExitCode()> set_up_list(CLI::App& app);
std::function<ExitCode()> set_up_doctor(CLI::App& app);
std::function<ExitCode()> set_up_schema(CLI::App& app);
std::function<ExitCode()> set_up_watch(CLI::App& app);
std::function<ExitCode()> set_up_man(CLI::App& app);
std::function<ExitCode()> set_up_completion(CLI::App& app);

struct Verb;
// Of a verb that has none of these.
std::function<ExitCode()> set_up_verb(CLI::App& app, const Verb& verb);

// The main job on an embedded example, for a newcomer who typed no command.
ExitCode run_example();

// Flags every command has.
struct OutputFlags {
  bool json = false;  // short for --format json
  bool ascii = false;
  std::string format = "text";
  std::string colour = "auto";
  void add_to(CLI::App& app);
  OutputForm form() const;                    // throws where two are asked for
  Show show(OnProgress progress = {}) const;  // prints what was asked for on stdout, notes on stderr
};

}  // namespace plimsoll
