#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "hardware/detect.h"
#include "job/config.h"
#include "report/hardware_report.h"

namespace plimsoll {

namespace {

struct DoctorFlags {
  std::string root, nvml, rocm_smi;
  OutputFlags output;
};

Surroundings surroundings_of(const DoctorFlags& flags) {
  Surroundings s = Surroundings::here();
  std::error_code error;
  if (!flags.root.empty() && !std::filesystem::is_directory(flags.root, error))
    throw Error("[doctor] --root '" + flags.root + "' is not a folder", "give the folder that holds proc and sys, e.g. --root /host",
                ExitCode::usage);
  s.root = flags.root;
  if (!flags.nvml.empty()) s.nvml = {flags.nvml};
  if (!flags.rocm_smi.empty()) s.rocm_smi = {flags.rocm_smi};
  return s;
}

bool usable(const DetectedDevice& d) { return d.usable && d.visible != Visible::no; }

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
  app.add_option("--root", flags->root, "read /proc, /sys and /dev below this folder")->type_name("DIR");
  app.add_option("--nvml", flags->nvml, "NVIDIA's management library (default libnvidia-ml.so.1)")->type_name("FILE");
  app.add_option("--rocm-smi", flags->rocm_smi, "AMD's management library (default librocm_smi64.so)")->type_name("FILE");
  flags->output.add_to(app);
  return [flags] {
    const Machine m = detect(surroundings_of(*flags));
    if (flags->output.json) {
      std::cout << dump(machine_json(m), 2) << "\n";
    } else {
      std::cout << machine_text(m, Style::detect(flags->output.colour, flags->output.ascii));
    }
    return std::any_of(m.devices.begin(), m.devices.end(), usable) ? ExitCode::ok : ExitCode::no_hardware;
  };
}

}  // namespace plimsoll
