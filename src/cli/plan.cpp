#include "api/plan.h"

#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "cli/progress.h"
#include "cli/request_flags.h"
#include "plan/space.h"

namespace plimsoll {

namespace {

struct PlanFlags {
  JobFlags job;
  DeviceFlags devices;
  SearchRequest search;
  std::string rules;
  bool uncalibrated = false;
  OutputFlags output;
};

std::string knobs_text() {
  std::string out = "What a plan turns (--keep, --allow):\n";
  for (const Knob& k : knobs()) out += fmt::format("  {:<14} {}{}\n", k.name, k.help, k.asked_for ? " (only with --allow)" : "");
  return out;
}

}  // namespace

std::function<ExitCode()> set_up_plan(CLI::App& app) {
  auto f = std::make_shared<PlanFlags>();
  app.footer(
      "Examples:\n"
      "  plimsoll plan llama-3.1-8b --gpu rtx-4090                      the fastest recipe that fits\n"
      "  plimsoll plan train.yaml --gpu rtx-4090 --keep precision       without touching the precision\n"
      "  plimsoll plan train.yaml --gpu rtx-4090 --diff                 what to change in the file\n"
      "  plimsoll plan train.yaml --gpu rtx-4090 --write smaller.yaml   the file with the changes\n"
      "  python train.py $(plimsoll plan --gpu this --flags -- python train.py)\n"
      "  plimsoll plan gpt2-xl --batch 64 --gpus all                    settings for every device\n"
      "  plimsoll plan gpt2-xl --matrix gpu=rtx-4090,a100-80gb,batch=1,2,4,8\n"
      "  plimsoll plan llama-3.1-405b --gpu h100-sxm --world 1024       layouts over many devices\n" +
      knobs_text() +
      "A batch that is given is kept as the total: micro-batch and accumulation change. Without one it is free. Times are estimates\n"
      "(docs/time.md).\n"
      "Exit codes: 0 a plan was found, 3 nothing that may be changed makes it fit, 2 wrong usage, 5 input not understood, 6 no GPU here\n"
      "and none named, 1 a bug.");
  f->job.add_input_to(app);
  add_flags(app, plan_keys(), f->search);
  app.add_flag("--no-calibration", f->uncalibrated, "leave out what `plimsoll watch` timed of like runs on this machine")
      ->group("The goal");
  app.add_option("--rules", f->rules)->group("");  // of old, to say where it went
  f->devices.counted = true;
  f->devices.add_to(app);
  f->output.add_to(app);
  f->job.add_to(app);
  return [f] {
    if (!f->rules.empty()) throw Error("[plan] --rules is no longer a flag of plan", kAiToolkitHint, ExitCode::usage);
    SearchRequest request = f->search;
    request.job = f->job.request();
    request.devices = f->devices;
    request.calibrated = !f->uncalibrated;
    return answer_with_progress(f->output, [&](const Show& show) { return answer(request, show); });
  };
}

}  // namespace plimsoll
