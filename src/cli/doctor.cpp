#include "api/doctor.h"

#include <memory>

#include "cli/command.h"
#include "cli/request_flags.h"

namespace plimsoll {

namespace {

struct DoctorFlags {
  DoctorRequest request;
  OutputFlags output;
};

}  // namespace

std::function<ExitCode()> set_up_doctor(CLI::App& app) {
  auto flags = std::make_shared<DoctorFlags>();
  app.footer(
      "Prints what drivers, /sys, /proc and control groups said word for word, what follows from it, and what blocks an answer.\n"
      "Nothing is written or sent; paste the output into a bug report.\n"
      "Examples:\n"
      "  plimsoll doctor\n"
      "  plimsoll doctor --json\n"
      "  plimsoll doctor --root /host                 a host whose /proc and /sys are mounted into this container\n"
      "Exit codes: 0 a device with a known size is visible, 6 none is.");
  add_flags(app, doctor_keys(), flags->request);
  flags->output.add_to(app);
  return [flags] { return answer(flags->request, flags->output.show()); };
}

}  // namespace plimsoll
