#include "api/explain.h"

#include <memory>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"
#include "cli/progress.h"

namespace plimsoll {

namespace {

struct ExplainFlags {
  JobFlags job;
  DeviceFlags devices;
  OutputFlags output;
  std::string run, bundle, marks;
  std::optional<int> device;
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
      "  plimsoll explain - < slurm-123.out                               from a pipe\n"
      "  plimsoll explain train.log -- python train.py --batch_size 8     with the run: fixes have computed savings\n"
      "  plimsoll explain train.log --run config.yaml --bundle help.tar   and an archive to ask for help with, without secrets\n"
      "What a program recorded of its own memory: a PyTorch snapshot, a torch.profiler trace or memory timeline, memory_stats() as JSON.\n"
      "  plimsoll explain snap.pickle                                     who holds memory at the peak, holes, leaks, other settings\n"
      "  plimsoll explain snap.pickle --marks train_step                  what grows from one such mark to the next\n"
      "  plimsoll explain trace.json.gz                                   from profile(profile_memory=True)\n"
      "Exit codes: 0 done (with --json, is_oom tells what was found), 2 wrong usage, 5 input not understood, 1 a bug.");
  flags->job.add_input_to(app);
  flags->job.add_to(app);
  flags->devices.add_to(app);
  constexpr const char* kFailure = "After a failure";
  app.add_option("--run", flags->run, "the run whose log it is: a model, a file, a directory or a command in quotes")
      ->type_name("RUN")
      ->group(kFailure);
  app.add_option("--bundle", flags->bundle, "write hardware, configuration, error and estimate to a tar archive, without secrets and names")
      ->type_name("FILE.tar")
      ->group(kFailure);
  constexpr const char* kSnapshot = "Memory snapshots";
  app.add_option("--device", flags->device, "the device to look at (default: the one with the most events)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->group(kSnapshot);
  app.add_option("--marks", flags->marks, "where steps begin: numbers of entries, or a part of an annotation's or a place's name")
      ->type_name("N,N,...|TEXT")
      ->group(kSnapshot);
  flags->output.add_to(app);
  return [flags] {
    ExplainRequest request{flags->job.request(), flags->devices, flags->run, flags->bundle};
    request.device = flags->device;
    request.marks = flags->marks;
    request.progress = reading_progress(flags->job.input.empty() ? "" : flags->job.input[0]);
    return answer(request, flags->output.show());
  };
}

}  // namespace plimsoll
