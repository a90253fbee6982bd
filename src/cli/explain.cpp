#include "api/explain.h"

#include <memory>

#include "cli/command.h"
#include "cli/device_flags.h"
#include "cli/job_flags.h"

namespace plimsoll {

namespace {

struct Flags {
  JobFlags job;
  DeviceFlags devices;
  OutputFlags output;
};

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
  return [flags] { return answer(ExplainRequest{flags->job.request(), flags->devices}, flags->output.show()); };
}

}  // namespace plimsoll
