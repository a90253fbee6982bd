#include "api/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/number_between.h"

namespace plimsoll {

namespace {

struct RunFlags {
  RunRequest request;
  DeviceFlags devices;
  bool no_allocator = false, uncalibrated = false;
};

// On stderr and from stdin, which the command gets afterwards. Whatever is no number of the list is the first.
size_t ask_on_terminal(const std::string& question, const std::vector<std::string>& choices) {
  std::cerr << "plimsoll: " << question << "\n";
  for (size_t i = 0; i < choices.size(); ++i) std::cerr << fmt::format("  {}  {}\n", i + 1, choices[i]);
  std::cerr << "[1] " << std::flush;
  std::string typed;
  for (char c = 0; read(STDIN_FILENO, &c, 1) == 1 && c != '\n';) typed += c;  // no byte beyond the line
  size_t chosen = 1;
  std::from_chars(typed.data(), typed.data() + typed.size(), chosen);
  return chosen >= 1 && chosen <= choices.size() ? chosen - 1 : 0;
}

}  // namespace

std::function<ExitCode()> set_up_run(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  SupervisorRequest& r = flags->request.supervisor;
  app.footer(
      "Runs a training command to its end. When memory runs out it starts the command again from its last checkpoint: with a smaller\n"
      "micro-batch and more accumulation (the global batch stays), with fewer workers when it was the host's memory, with another "
      "allocator\n"
      "setting when the memory was there in pieces. Everything else ends it with the command's own exit code.\n"
      "  plimsoll run -- python run_clm.py --per_device_train_batch_size 8 --output_dir out ...       a trainer that is known\n"
      "  plimsoll run -- python train.py --batch_size 8                                               a batch flag by its usual name\n"
      "  plimsoll run -- torchrun --nproc_per_node=4 train.py --config train.yaml                     before the launcher, not in it\n"
      "  plimsoll run --set 'micro_batch_size={batch}' --set '--accum={accumulation}' -- python my_train.py --micro_batch_size 8\n"
      "  plimsoll run --set 'BATCH={batch}' --batch 8 -- ./train.sh                                   an environment variable\n"
      "  plimsoll run --resume-flag '--resume {checkpoint}' --checkpoints 'out/*.pt' -- python ...    goes on where it was\n"
      "  plimsoll run --requeue -- srun python train.py                                               inside sbatch: Slurm restarts it\n"
      "  plimsoll run --dry-run -- COMMAND                                                            what it would do\n"
      "Every decision is a line in events.jsonl of the state folder. After a crash, a reboot or `kill -9` the same command goes on.\n"
      "Exit codes: the command's own (128 + signal), 75 when nothing is left to try, 126 or 127 when it cannot be started.");
  app.add_option("command", r.command, "-- and the command")->required()->type_name("-- COMMAND");
  app.add_option("--set", r.set, "where the command takes a value: NAME=TEMPLATE with {batch}, {accumulation}, {workers} (repeatable)")
      ->type_name("NAME={batch}")
      ->allow_extra_args(false);
  app.add_option("--batch", r.given.batch, "the micro-batch to begin with, where the command does not say it")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  app.add_option("--accumulation", r.given.accumulation, "the same for micro-batches a step")->check(CLI::PositiveNumber)->type_name("N");
  app.add_option("--workers", r.given.workers, "the same for the loader's workers")->check(CLI::NonNegativeNumber)->type_name("N");
  app.add_option("--minimum", r.minimum, "the smallest micro-batch (default 1)")->check(CLI::PositiveNumber)->type_name("N");
  app.add_option("--maximum", r.maximum, "the largest (default: the one to begin with)")->check(CLI::PositiveNumber)->type_name("N");
  app.add_option("--retries", r.retries, "restarts without progress before it gives up (default 8)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_option("--backoff", r.backoff, "seconds before the first restart, doubled each time up to 60 (default 1)")
      ->check(number_between(0, 86400))
      ->type_name("S");
  app.add_option("--grow-after", r.grow_after, "seconds a size must have gone well before a later start tries the next (default 3600)")
      ->check(number_between(0, 1e9))
      ->type_name("S");
  app.add_option("--grace", r.grace, "seconds between SIGTERM and SIGKILL for what the command leaves behind (default 10)")
      ->check(number_between(0, 86400))
      ->type_name("S");
  app.add_option("--hang", r.hang,
                 "seconds without output after an out-of-memory before what still runs is ended: ranks that wait for the dead one (default "
                 "300; 0: never)")
      ->check(number_between(0, 1e6))
      ->type_name("S");
  app.add_option("--resume-flag", r.resume_flag, "words to add from the second start on; {checkpoint} is the newest of --checkpoints")
      ->type_name("WORDS");
  app.add_option("--checkpoints", r.checkpoints, "where checkpoints are: a pattern like 'out/checkpoint-*'")->type_name("GLOB");
  app.add_flag("--no-allocator", flags->no_allocator, "leave PYTORCH_CUDA_ALLOC_CONF alone");
  app.add_flag("--requeue", r.requeue, "inside a Slurm job: scontrol requeue instead of a restart here");
  app.add_option("--requeue-exit", r.requeue_exit, "the same by an exit code that slurm.conf lists under RequeueExit")
      ->check(CLI::Range(1, 255))
      ->type_name("CODE");
  app.add_option("--state", r.folder, "where the state is kept (default .plimsoll/NAME-HASH here)")->type_name("DIR");
  app.add_option("--events", r.events, "where decisions are written (default events.jsonl in it)")->type_name("FILE");
  app.add_flag("--anew", r.anew, "begin anew: what an earlier start of this command saved is set aside");
  app.add_flag("--quiet", r.quiet, "nothing on stderr but errors and the command's own");
  app.add_flag("--dry-run", flags->request.dry, "only say what would be done");
  app.add_flag("--json", flags->request.json, "with --dry-run: as JSON");
  app.add_flag("--no-calibration", flags->uncalibrated, "estimate without what was measured of like runs on this machine");
  flags->devices.add_to(app);
  return [flags] {
    RunRequest request = flags->request;
    request.supervisor.allocator = !flags->no_allocator;
    request.devices = flags->devices;
    request.calibrated = !flags->uncalibrated;
    if (isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0) request.supervisor.ask = ask_on_terminal;
    request.supervisor.say = [](const std::string& lines) { std::cerr << lines << std::flush; };
    return static_cast<ExitCode>(answer(request, [](const std::string& text) { std::cout << text; }));
  };
}

}  // namespace plimsoll
