#include "cli/device_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "hardware/detect.h"
#include "hardware/lookup.h"
#include "util/parse_bytes.h"

namespace plimsoll {

namespace {

std::vector<TargetDevice> devices_here() {
  std::vector<TargetDevice> out;
  for (const DetectedDevice& d : detect(Surroundings::here()).devices)
    if (d.visible != Visible::no && !d.split) out.push_back(target_device(d));
  if (out.empty())
    throw Error("[gpu] this machine has no visible GPU", "`plimsoll doctor` says what was looked at; or name a device: --gpu rtx-4090",
                ExitCode::no_hardware);
  return out;
}

// "24GiB": a device that is only a size.
std::optional<TargetDevice> device_of_size(const std::string& text) {
  if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0])) || !std::isalpha(static_cast<unsigned char>(text.back())))
    return std::nullopt;
  const Bytes size = parse_bytes(text, "--gpu");
  if (size.count <= 0) throw Error("[gpu] a device of " + text + " has no memory", "give a size above 0", ExitCode::usage);
  TargetDevice d;
  d.spec.vendor = "NVIDIA";
  d.name = text;
  d.capacity = Capacity{size, size, size, "as given"};
  return d;
}

}  // namespace

void DeviceFlags::add_to(CLI::App& app) {
  app.add_option("--gpu", names, "devices to fit: names of the catalogue, sizes like 24GiB, or `this` for those of this machine")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->group("Devices");
  app.add_option("--gpus", group, "`all`: a table of every device of the catalogue")
      ->check(CLI::IsMember({"all"}))
      ->type_name("all")
      ->group("Devices");
  app.add_option("--in-use", in_use, "memory that other processes use on the device, e.g. 500MiB for a desktop")
      ->type_name("BYTES")
      ->group("Devices");
}

std::vector<TargetDevice> DeviceFlags::devices() const {
  std::vector<TargetDevice> out;
  for (const std::string& name : names) {
    if (name == "this") {
      for (TargetDevice& d : devices_here()) out.push_back(std::move(d));
    } else if (std::optional<TargetDevice> sized = device_of_size(name)) {
      out.push_back(*sized);
    } else {
      out.push_back(target_device(find_device(name)));
    }
  }
  if (group == "all")
    for (const DeviceSpec& d : catalogue()) out.push_back(target_device(d));
  if (!in_use.empty()) {
    if (out.empty()) throw Error("[in-use] --in-use without a device", "add --gpu NAME", ExitCode::usage);
    for (TargetDevice& d : out) d.others = parse_bytes(in_use, "--in-use");
  }
  return out;
}

ExitCode exit_code_of(const std::vector<Fit>& fits) {
  auto any = [&](Verdict v) { return std::any_of(fits.begin(), fits.end(), [v](const Fit& f) { return f.verdict == v; }); };
  if (any(Verdict::fits) || fits.empty()) return ExitCode::ok;
  if (any(Verdict::tight)) return ExitCode::tight;
  return any(Verdict::does_not_fit) ? ExitCode::no : ExitCode::ok;
}

}  // namespace plimsoll
