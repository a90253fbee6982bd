#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/host_flags.h"
#include "cli/job_flags.h"
#include "estimate/estimate.h"
#include "job/lint.h"
#include "report/estimate_report.h"
#include "report/fit_report.h"
#include "report/levers_report.h"
#include "step/train.h"
#include "trace/trace_file.h"

namespace plimsoll {

namespace {

struct Flags {
  JobFlags job;
  std::string save_trace;
  TextOptions text;
  size_t top = 10;
  HostFlags host;
  OutputFlags output;
  DeviceFlags devices;
  bool what_if = false;
};

// Where the figures are not those of what was asked.
std::string warnings_text(const Job& job) {
  std::string text;
  for (const Finding& f : job.findings)
    if (f.effect == Effect::partial || f.effect == Effect::conflict || f.effect == Effect::refused)
      text += fmt::format("  {}: {}{}{}\n", f.source, f.setting.empty() ? "" : f.setting + ": ", f.what,
                          f.why.empty() ? "" : " (" + f.why + ")");
  return text.empty() ? text : "\nMind\n" + text;
}

nlohmann::ordered_json findings_json(const Job& job) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Finding& f : job.findings)
    out.push_back({{"effect", to_string(f.effect)}, {"setting", f.setting}, {"source", f.source}, {"what", f.what}, {"why", f.why}});
  return out;
}

// Returns the verdict on the machine that was named; unknown when none was.
Verdict print(const Estimate& e, const std::vector<Fit>& fits, const std::optional<WhatIf>& changes, const Flags& flags) {
  const Style style = Style::detect(flags.output.colour, flags.output.ascii);
  nlohmann::ordered_json json = estimate_json(e);
  json["fits"] = fits_json(fits);
  json["findings"] = findings_json(e.job);
  std::string text = estimate_text(e, style, flags.text) + warnings_text(e.job);
  if (!fits.empty()) text += "\n" + fits_text(fits, style);
  if (changes) {
    json["what_if"] = what_if_json(*changes);
    text += "\n" + what_if_text(*changes, style);
  }
  const Verdict verdict = add_host_sections(flags.host, e, style, text, json);
  std::cout << (flags.output.json ? dump(json, 2) + "\n" : text);
  return verdict;
}

// An evaluation in the batch of training is part of the question, as in estimate().
std::vector<Fit> fits_of(Job job, const std::vector<TargetDevice>& devices) {
  if (job.eval_batch == 0) job.eval_batch = job.batch;
  Fitting fitting(job);
  std::vector<Fit> fits;
  for (const TargetDevice& d : devices) fits.push_back(fitting.on(d));
  return fits;
}

// What the allocator is asked for: of a JAX job two calls of its compiled step.
Trace trace_of(const Job& job, const std::vector<TargetDevice>& devices) {
  if (job.framework == Framework::pytorch) return simulate(job).trace;
  const XlaMemory program = compile(job, device_kind(job, devices.size() == 1 ? std::optional(devices[0].spec) : std::nullopt));
  return allocator_trace(program, program.temporaries.usual);
}

// The model of a host is that of a PyTorch process.
void check_host_flags(const HostFlags& flags, const Job& job) {
  if (job.framework == Framework::pytorch || !(flags.wants_host() || flags.rule || !flags.unified.empty())) return;
  throw Error("[estimate] host memory, unified memory and rules of thumb are for framework pytorch",
              "leave their flags out with framework jax", ExitCode::usage);
}

ExitCode exit_code(Verdict v) { return v == Verdict::does_not_fit ? ExitCode::no : v == Verdict::tight ? ExitCode::tight : ExitCode::ok; }

}  // namespace

std::function<ExitCode()> set_up_estimate(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.footer(
      "Examples:\n"
      "  plimsoll estimate gpt2 --batch 8 --seq 1024\n"
      "  plimsoll estimate llama-3.1-8b --precision bf16 --checkpointing --optimizer-args fused=true\n"
      "  plimsoll estimate ./my-model/config.json --batch 4 --json\n"
      "  plimsoll estimate --job run.yaml --batch 16\n"
      "  plimsoll estimate gpt2-xl --batch 4 --gpu rtx-4090,a100-80gb     will it fit?\n"
      "  plimsoll estimate gpt2-xl --batch 4 --gpu rtx-4090 --what-if     what would help?\n"
      "  plimsoll estimate gpt2-xl --batch 4 --gpu this                   on the GPUs of this machine\n"
      "  plimsoll estimate gpt2-xl --batch 4 --gpus all                   a table of all devices\n"
      "A job file has the same settings as the flags (`plimsoll list settings`); flags win over it.\n"
      "Exit codes: 0 done (with --gpu: it fits one of them), 3 it fits none, 4 it is tight at best, 2 wrong usage, 5 input not\n"
      "understood, 6 `--gpu this` without a GPU, 1 a bug.");
  flags->job.add_input_to(app);
  app.add_option("--save-trace", flags->save_trace, "write the simulated allocations to FILE, for `plimsoll replay`")->type_name("FILE");
  flags->job.add_to(app);
  app.add_option("--depth", flags->text.depth, "levels of the module tree (default 3)")->check(CLI::Range(0, 20))->type_name("N");
  app.add_option("--top", flags->top, "how many of the largest tensors to list (default 10)")->check(CLI::Range(0, 1000))->type_name("N");
  app.add_flag("--what-if", flags->what_if, "what each change of the recipe would save for this job, by simulating it");
  flags->devices.add_to(app);
  flags->host.add_to(app);
  flags->output.add_to(app);
  return [flags] {
    flags->host.check();
    Job job = flags->job.job();
    const std::vector<TargetDevice> devices = flags->devices.devices();
    lint(job, devices.size() == 1 ? GpuFacts{devices[0].name, devices[0].spec.compute_capability} : GpuFacts{});
    check_host_flags(flags->host, job);
    if (flags->what_if && job.framework == Framework::jax)
      throw Error("[estimate] --what-if is for framework pytorch", "with framework jax, compare: --vary donate=false,true",
                  ExitCode::usage);
    if (!flags->save_trace.empty()) write_trace(trace_of(job, devices), flags->save_trace);
    const std::vector<Fit> fits = fits_of(job, devices);
    const Estimate e = estimate(job, flags->top, devices.size() == 1 ? std::optional(devices[0].spec) : std::nullopt);
    std::optional<WhatIf> changes;
    if (flags->what_if) changes = what_if(job, devices.empty() ? std::nullopt : std::optional(devices[0]));
    const ExitCode host = exit_code(print(e, fits, changes, *flags));
    const ExitCode device = exit_code_of(fits);
    return host == ExitCode::no || device == ExitCode::ok ? host : device;
  };
}

ExitCode run_example() {
  Flags flags;
  flags.job.input = {"gpt2"};
  flags.job.values["batch"] = "8";
  print(estimate(flags.job.job(), 5), {}, {}, flags);
  std::cout << "\nThat was `plimsoll estimate gpt2 --batch 8`. Try next:\n"
               "  plimsoll estimate llama-3.1-8b --precision bf16 --checkpointing   another model and recipe\n"
               "  plimsoll estimate path/to/config.json --batch 4                   your own model\n"
               "  plimsoll list presets                                             what is known\n"
               "  plimsoll --help                                                   everything else\n";
  return ExitCode::ok;
}

}  // namespace plimsoll
