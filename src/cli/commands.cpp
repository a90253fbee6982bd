#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "job/config.h"

namespace plimsoll {

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands{
      {"estimate", "how much memory a training run needs, what takes it, and when", set_up_estimate},
      {"compare", "jobs side by side: peaks, what they are made of, verdicts", set_up_compare},
      {"explain", "what a configuration will really do; what a log, a memory snapshot or a profile says", set_up_explain},
      {"report", "the memory of a run as a document: breakdown, bottlenecks, recommendations, comparison", set_up_report},
      {"plan", "what to change so that a run fits and is fast: found by executing, with what each change saves and costs", set_up_plan},
      {"watch", "a run while it trains: memory, workers, leaks, what was predicted beside what is measured", set_up_watch},
      {"measure", "real training of published systems under a byte budget, beside its simulation", set_up_measure},
      {"score", "predictions beside recorded PyTorch runs, to the byte", set_up_score},
      {"replay", "a trace under PyTorch's allocator with any settings: reserved, fragmentation, retries", set_up_replay},
      {"run", "a training command to its end: smaller micro-batches and a restart from the last checkpoint when memory runs out",
       set_up_run},
      {"list", "what is known: models, presets, optimizers, settings, gpus", set_up_list},
      {"doctor", "what this machine has, what its drivers say, and what blocks an answer", set_up_doctor},
      {"man", "the manual page of a command", set_up_man},
      {"completion", "what a shell needs to complete commands, options and their values", set_up_completion},
  };
  return kCommands;
}

void OutputFlags::add_to(CLI::App& app) {
  app.add_flag("--json", json, "one JSON document on stdout, sizes in bytes");
  app.add_flag("--ascii", ascii, "no Unicode in text output");
  app.add_option("--color", colour, "auto, always or never")->check(CLI::IsMember({"auto", "always", "never"}))->type_name("WHEN");
}

Show OutputFlags::show() const {
  return [*this](const auto& text, const auto& document) {
    std::cout << (json ? dump(document(), 2) + "\n" : text(Style::detect(colour, ascii)));
  };
}

}  // namespace plimsoll
