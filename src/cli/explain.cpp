#include "api/explain.h"

#include <unistd.h>

#include <memory>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "cli/progress.h"
#include "cli/request_flags.h"

namespace plimsoll {

namespace {

struct ExplainFlags {
  JobFlags job;
  DeviceFlags devices;
  ExplainRequest request;  // what is not in one of the above
  OutputFlags output;
};

}  // namespace

std::function<ExitCode()> set_up_explain(CLI::App& app) {
  auto flags = std::make_shared<ExplainFlags>();
  app.footer(
      "Before a run: what a configuration or command will really do; every value is shown with the place it comes from.\n"
      "  plimsoll explain config.json                                     a trainer's configuration\n"
      "  plimsoll explain -- python train.py --model_size medium --vram 16gb\n"
      "  plimsoll explain 'torchrun --nproc_per_node=4 train.py --config x.yaml' --gpu a100-80gb\n"
      "  plimsoll explain ./my-run                                        a directory with several of them\n"
      "After a failure: what its log or error says, why, and what to change. Logs are recognised by their content.\n"
      "  plimsoll explain train.log                                       the first out-of-memory in it, its causes and fixes\n"
      "  plimsoll explain < slurm-123.out                                 from a pipe; kubectl logs POD | plimsoll explain\n"
      "  plimsoll explain 'CUDA out of memory. Tried to allocate ...'     the error alone, pasted\n"
      "  plimsoll explain train.log -- python train.py --batch_size 8     with the run: fixes have computed savings\n"
      "  plimsoll explain train.log --run config.yaml --bundle help.tar   and an archive to ask for help with, without secrets\n"
      "What a program recorded of its own memory: a PyTorch snapshot, a torch.profiler trace or memory timeline, memory_stats() as JSON.\n"
      "  plimsoll explain snap.pickle                                     who holds memory at the peak, holes, leaks, other settings\n"
      "  plimsoll explain snap.pickle --marks train_step                  what grows from one such mark to the next\n"
      "  plimsoll explain trace.json.gz                                   from profile(profile_memory=True)\n"
      "Exit codes: 0 done (with --json, is_oom tells what was found), 5 input not understood: neither a run nor a log, 7 ended by Ctrl-C\n"
      "with what was known by then, 2 wrong usage, 1 a bug.");
  flags->job.add_input_to(app);
  flags->job.add_to(app);
  flags->devices.add_to(app);
  add_flags(app, explain_keys(), flags->request);
  app.add_option("--run", flags->request.run, "the run whose log it is: a model, a file, a directory or a command in quotes")
      ->type_name("RUN")
      ->group("After a failure");
  app.add_flag("-v,--verbose", flags->request.verbose, "of a log: every change that may help, not the first three");
  flags->output.add_to(app);
  return [flags] {
    ExplainRequest request = flags->request;
    request.job = flags->job.request();
    request.devices = flags->devices;
    const bool asked = !request.job.run.empty() || !request.job.job_file.empty();
    if (!asked && isatty(STDIN_FILENO) == 0) request.job.run = {"-"};
    return answer_with_progress(flags->output, [&](const Show& show) { return answer(request, show); });
  };
}

}  // namespace plimsoll
