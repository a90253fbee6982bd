#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "job/settings.h"
#include "report/compare_report.h"

namespace plimsoll {

namespace {

constexpr size_t kMostJobs = 64;

struct Flags {
  std::vector<std::string> subjects, vary;
  JobFlags job;
  DeviceFlags devices;
  OutputFlags output;
};

struct Variant {
  std::string name;
  JobFlags flags;
};

// "batch=1,2,4": every variant so far with each of the values.
std::vector<Variant> varied(const std::vector<Variant>& before, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Error("[vary] '" + text + "' is not KEY=VALUE,VALUE", "e.g. --vary batch=1,2,4", ExitCode::usage);
  const std::string key = text.substr(0, equals);
  std::vector<Variant> out;
  for (const Variant& v : before) {
    for (size_t begin = equals + 1; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const std::string value = text.substr(begin, end - begin);
      Variant next = v;
      next.flags.values[key] = value;
      next.name += (next.name.empty() ? "" : " ") + key + "=" + value;
      out.push_back(next);
      begin = end + 1;
    }
  }
  if (out.size() > kMostJobs)
    throw Error(fmt::format("[vary] {} jobs are more than {}", out.size(), kMostJobs), "vary fewer settings at once", ExitCode::usage);
  return out;
}

std::vector<Variant> variants_of(const Flags& flags) {
  std::vector<Variant> out;
  for (const std::string& subject : flags.subjects) {
    Variant v{subject, flags.job};
    v.flags.input = {subject};
    out.push_back(v);
  }
  if (out.empty()) out.push_back({"", flags.job});
  if (flags.vary.empty() && out.size() < 2)
    throw Error("[compare] one job has nothing to be compared with", "name a second one, or --vary batch=1,2,4", ExitCode::usage);
  for (const std::string& text : flags.vary) out = varied(out, text);
  return out;
}

ComparedJob compared(const Variant& v, const std::vector<TargetDevice>& devices) {
  Job job = v.flags.job();
  ComparedJob out{
      v.name.empty() ? job.model : v.name, estimate(job, 0, devices.size() == 1 ? std::optional(devices[0].spec) : std::nullopt), {}};
  if (job.eval_batch == 0) job.eval_batch = job.batch;
  Fitting fitting(job);
  for (const TargetDevice& d : devices) out.fits.push_back(fitting.on(d));
  return out;
}

}  // namespace

std::function<ExitCode()> set_up_compare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.footer(
      "Examples:\n"
      "  plimsoll compare gpt2 gpt2-medium --batch 8\n"
      "  plimsoll compare before.yaml after.yaml --gpu rtx-4090\n"
      "  plimsoll compare llama-3.1-8b --precision bf16 --vary batch=1,2,4 --vary checkpointing=false,true\n"
      "Flags hold for every job; differences are from the first.\n"
      "Exit codes: 0 done, 2 wrong usage, 5 input not understood, 1 a bug.");
  app.add_option("jobs", flags->subjects, "models and job files")->type_name("JOB");
  app.add_option("--vary", flags->vary, "a setting and its values: one job for each, and for each combination (repeatable)")
      ->type_name("KEY=A,B,...")
      ->delimiter('\0');
  flags->job.add_to(app);
  flags->devices.add_to(app);
  flags->output.add_to(app);
  return [flags] {
    const std::vector<TargetDevice> devices = flags->devices.devices();
    std::vector<ComparedJob> jobs;
    for (const Variant& v : variants_of(*flags)) jobs.push_back(compared(v, devices));
    if (flags->output.json) {
      std::cout << dump(compare_json(jobs), 2) << "\n";
    } else {
      std::cout << compare_text(jobs, Style::detect(flags->output.colour, flags->output.ascii));
    }
    return ExitCode::ok;
  };
}

}  // namespace plimsoll
