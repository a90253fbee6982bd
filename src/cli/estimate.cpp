#include "api/estimate.h"

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "cli/progress.h"
#include "cli/request_flags.h"

namespace plimsoll {

namespace {

struct EstimateFlags {
  JobFlags job;
  DeviceFlags devices;
  EstimateRequest request;  // what is not in one of the above
  bool uncalibrated = false;
  OutputFlags output;
};

}  // namespace

std::function<ExitCode()> set_up_estimate(CLI::App& app) {
  auto flags = std::make_shared<EstimateFlags>();
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
      "  plimsoll estimate gpt2 -v                                        every row: tree, tensors, overheads, steps\n"
      "A job file has the same settings as the flags (`plimsoll list settings`); flags win over it.\n"
      "Exit codes: 0 done (with --gpu: it fits one of them), 3 it fits none, 4 it is tight at best, 2 wrong usage, 5 input not\n"
      "understood, 6 `--gpu this` without a GPU, 1 a bug.");
  flags->job.add_input_to(app);
  add_flags(app, estimate_keys(), flags->request);
  app.get_option("--top")->each([flags](const std::string&) { flags->request.verbose = true; });  // they are shown only there
  flags->job.add_to(app);
  app.add_option("--depth", flags->request.text.depth, "levels of the module tree (default 3); turns --verbose on")
      ->check(CLI::Range(0, 20))
      ->type_name("N")
      ->each([flags](const std::string&) { flags->request.verbose = true; });
  app.add_flag("-v,--verbose", flags->request.verbose,
               "everything: the module tree, the largest tensors, overheads and their sources, every step");
  app.add_flag("--no-calibration", flags->uncalibrated, "leave out what `plimsoll watch` measured of like runs on this machine");
  flags->devices.add_to(app);
  add_flags(app, host_keys(), flags->request.host);
  flags->output.add_to(app);
  return [flags] {
    EstimateRequest request = flags->request;
    request.job = flags->job.request();
    request.devices = flags->devices;
    request.calibrated = !flags->uncalibrated;
    return answer_with_progress(flags->output, [&](const Show& show) { return answer(request, show); });
  };
}

ExitCode run_example() {
  EstimateFlags flags;
  flags.job.input = {"gpt2"};
  flags.job.values["batch"] = "8";
  flags.request.job = flags.job.request();
  flags.request.top = 5;
  answer(flags.request, flags.output.show());
  std::cout << "\nThat was `plimsoll estimate gpt2 --batch 8`. Try next:\n"
               "  plimsoll estimate llama-3.1-8b --precision bf16 --checkpointing   another model and recipe\n"
               "  plimsoll estimate path/to/config.json --batch 4                   your own model\n"
               "  plimsoll list presets                                             what is known\n"
               "  plimsoll --help                                                   everything else\n";
  return ExitCode::ok;
}

}  // namespace plimsoll
