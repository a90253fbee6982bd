#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "model/registry.h"
#include "report/explain_report.h"

namespace plimsoll {

namespace {

struct Flags {
  JobFlags job;
  DeviceFlags devices;
  OutputFlags output;
};

// Whose defaults a missing key has: LlamaConfig for LlamaForCausalLM.
std::string configuration_class(const std::string& family) {
  const ModelEntry* entry = find_model(family);
  if (!entry || entry->classes.empty() || !entry->library.empty()) return family;
  const std::string& name = entry->classes.front();
  const size_t end = std::min(name.find("For"), name.find("LMHead"));
  return (end == std::string::npos ? name : name.substr(0, end)) + "Config";
}

Explanation explanation(const Flags& flags) {
  Job job = flags.job.job();
  const auto lookups = std::make_shared<std::vector<ConfigLookup>>();
  job.config.watch(lookups);
  const std::vector<TargetDevice> devices = flags.devices.devices();
  Explanation x = explain_job(estimate(job, 0, devices.size() == 1 ? std::optional(devices[0].spec) : std::nullopt), *lookups,
                              configuration_class(job.family));
  Fitting fitting(job);
  for (const TargetDevice& d : devices) x.fits.push_back(fitting.on(d));
  return x;
}

}  // namespace

std::function<ExitCode()> set_up_explain(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.footer(
      "Examples:\n"
      "  plimsoll explain config.json                                     a trainer's configuration\n"
      "  plimsoll explain -- python train.py --model_size medium --vram 16gb\n"
      "  plimsoll explain 'torchrun --nproc_per_node=4 train.py --config x.yaml' --gpu a100-80gb\n"
      "  plimsoll explain ./my-run                                        a directory with several of them\n"
      "Every value is shown with the place it comes from. Exit codes: 0 done, 2 wrong usage, 5 input not understood, 1 a bug.");
  flags->job.add_input_to(app);
  flags->job.add_to(app);
  flags->devices.add_to(app);
  flags->output.add_to(app);
  return [flags] {
    const Explanation x = explanation(*flags);
    std::cout << (flags->output.json ? dump(explain_json(x), 2) + "\n"
                                     : explain_text(x, Style::detect(flags->output.colour, flags->output.ascii)));
    return ExitCode::ok;
  };
}

}  // namespace plimsoll
