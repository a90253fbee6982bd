// NVIDIA devices where the management library does not help: /proc/driver/nvidia has their names, not their memory; a Jetson's
// device tree has its model.
#include "hardware/sources.h"
#include "util/text.h"

namespace plimsoll {

namespace {

void read_proc_driver(const Surroundings& s, Machine& m) {
  const std::string folder = "/proc/driver/nvidia/gpus";
  for (const std::string& pci : s.list(folder)) {
    const auto text = s.read(folder + "/" + pci + "/information");
    if (!text || device_at(m, lower(pci))) continue;
    const auto values = key_values(*text, ':');
    const auto value = [&](const char* key) { return values.contains(key) ? printable(values.at(key)) : std::string(); };
    m.saw(folder + "/" + pci, "Model", value("Model"));
    m.saw(folder + "/" + pci, "GPU UUID", value("GPU UUID"));
    DetectedDevice d;
    d.vendor = "NVIDIA";
    d.source = "/proc/driver/nvidia";
    d.name = value("Model");
    // Without the right to ask, the driver prints "GPU-????????-...".
    if (value("GPU UUID").find('?') == std::string::npos) d.uuid = value("GPU UUID");
    d.pci = lower(pci);
    m.devices.push_back(std::move(d));
  }
}

// A Jetson's device tree lists "nvidia,tegra234" (Orin), "nvidia,tegra194" (Xavier), "nvidia,tegra264" (Thor); strings are separated by
// NULs.
void read_device_tree(const Surroundings& s, Machine& m) {
  const std::string compatible = s.read("/proc/device-tree/compatible").value_or("");
  if (compatible.find("nvidia,tegra") == std::string::npos) return;
  const std::string model = printable(s.read("/proc/device-tree/model").value_or(""));
  m.saw("/proc/device-tree", "compatible", printable(compatible));
  m.saw("/proc/device-tree", "model", model);
  for (DetectedDevice& d : m.devices)
    if (d.vendor == "NVIDIA" && !d.total) {
      d.memory = MemoryKind::unified;
      return;
    }
  DetectedDevice d;
  d.vendor = "NVIDIA";
  d.source = "/proc/device-tree";
  d.name = model.empty() ? "NVIDIA Tegra" : model;
  d.memory = MemoryKind::unified;
  m.devices.push_back(std::move(d));
}

}  // namespace

void probe_nvidia_proc(const Surroundings& s, Machine& m) {
  read_proc_driver(s, m);
  read_device_tree(s, m);
}

}  // namespace plimsoll
