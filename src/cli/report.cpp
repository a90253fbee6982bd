#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "report/seed_report.h"

namespace plimsoll {

namespace {

struct Flags {
  JobFlags job;
  DeviceFlags devices;
  std::string style = "seed", language = "en", output;
  std::vector<std::string> against;
};

std::string document(const Flags& flags) {
  const Job job = flags.job.job();
  const std::vector<TargetDevice> devices = flags.devices.devices();
  if (devices.size() > 1) throw Error("[report] a document is about one device", "name one with --gpu", ExitCode::usage);
  std::vector<std::pair<std::string, Job>> others;
  for (const std::string& other : flags.against) {
    JobFlags its = flags.job;
    its.input = {other};
    others.emplace_back(other, its.job());
  }
  const Language language = parse_language(flags.language);
  return seed_report_markdown(make_seed_report(job, devices.empty() ? std::nullopt : std::optional(devices[0]), others), language);
}

void save(const std::string& text, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw Error("[report] cannot write " + path, "check the folder, its permissions and the space on the disk");
}

}  // namespace

std::function<ExitCode()> set_up_report(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.footer(
      "Examples:\n"
      "  plimsoll report stdiff-kitti-64x2048 --gpu a100-80gb > memory.md\n"
      "  plimsoll report fsdm-lag --framework jax --language vi --output bo-nho.md\n"
      "  plimsoll report config.yaml --against config-small.yaml --gpu 24GiB\n"
      "Exit codes: 0 done, 2 wrong usage, 5 input not understood, 1 a bug.");
  flags->job.add_input_to(app);
  app.add_option("--style", flags->style, "seed: a numbered breakdown in Markdown (default)")
      ->check(CLI::IsMember({"seed"}))
      ->type_name("STYLE");
  app.add_option("--language", flags->language, "en or vi")->type_name("LANGUAGE");
  app.add_option("--against", flags->against, "another configuration for the comparison (repeatable; default: smaller batches)")
      ->allow_extra_args(false)
      ->type_name("JOB");
  app.add_option("--output", flags->output, "write to FILE instead of stdout")->type_name("FILE");
  flags->job.add_to(app);
  flags->devices.add_to(app);
  return [flags] {
    const std::string text = document(*flags);
    if (flags->output.empty()) {
      std::cout << text;
    } else {
      save(text, flags->output);
    }
    return ExitCode::ok;
  };
}

}  // namespace plimsoll
