#include "api/compare.h"

#include <memory>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

struct CompareFlags {
  std::vector<std::string> subjects, vary;
  JobFlags job;
  DeviceFlags devices;
  OutputFlags output;
};

Variation variation_of(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Error("[vary] '" + text + "' is not KEY=VALUE,VALUE", "e.g. --vary batch=1,2,4", ExitCode::usage);
  Variation out{text.substr(0, equals), {}};
  for (const std::string& value : split_at(text.substr(equals + 1), ',')) {
    if (value.empty()) throw Error("[vary] '" + text + "' has a value that is empty", "e.g. --vary batch=1,2,4", ExitCode::usage);
    out.values.push_back({value, parse_scalar(value)});
  }
  return out;
}

CompareRequest compare_request_of(const CompareFlags& flags) {
  CompareRequest out;
  out.devices = flags.devices;
  const JobRequest job = flags.job.request();
  for (const std::string& subject : flags.subjects) {
    out.runs.push_back({subject, job});
    out.runs.back().job.run = {subject};
  }
  if (out.runs.empty()) out.runs.push_back({"", job});
  for (const std::string& text : flags.vary) out.varied.push_back(variation_of(text));
  return out;
}

}  // namespace

std::function<ExitCode()> set_up_compare(CLI::App& app) {
  auto flags = std::make_shared<CompareFlags>();
  app.footer(
      "Examples:\n"
      "  plimsoll compare gpt2 gpt2-medium --batch 8\n"
      "  plimsoll compare before.yaml after.yaml --gpu rtx-4090\n"
      "  plimsoll compare llama-3.1-8b --precision bf16 --vary batch=1,2,4 --vary checkpointing=false,true\n"
      "CompareFlags hold for every job; differences are from the first.\n"
      "Exit codes: 0 done, 2 wrong usage, 5 input not understood, 1 a bug.");
  app.add_option("jobs", flags->subjects, "models and job files")->type_name("JOB");
  app.add_option("--vary", flags->vary, "a setting and its values: one job for each, and for each combination (repeatable)")
      ->type_name("KEY=A,B,...")
      ->allow_extra_args(false)
      ->delimiter('\0');
  flags->job.add_to(app);
  flags->devices.add_to(app);
  flags->output.add_to(app);
  return [flags] { return answer(compare_request_of(*flags), flags->output.show()); };
}

}  // namespace plimsoll
