// The kernel, whether this is WSL or a container, and the environment variables that choose devices.
#include "hardware/sources.h"
#include "util/text.h"

namespace plimsoll {

namespace {

bool in_container(const Surroundings& s) {
  // Docker and Podman leave these files; Kubernetes and LXC name themselves in the first process's control group.
  if (s.exists("/.dockerenv") || s.exists("/run/.containerenv")) return true;
  const std::string groups = s.read("/proc/1/cgroup").value_or("");
  for (const char* word : {"docker", "kubepods", "containerd", "lxc", "libpod"})
    if (groups.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

void probe_system(const Surroundings& s, Machine& m) {
  const std::string version = s.read("/proc/version").value_or("");
  if (!version.empty()) m.saw("/proc/version", "", printable(version));
  m.system = printable(version.substr(0, version.find(" (")));
  // Microsoft's kernel names itself; /dev/dxg is the paravirtual GPU of WSL 2.
  m.wsl = lower(version).find("microsoft") != std::string::npos || s.exists("/dev/dxg");
  if (s.exists("/dev/dxg")) m.saw("/dev/dxg", "", "present");
  m.container = in_container(s);
  for (const auto& [name, value] : s.environment) m.saw("environment", name, "'" + printable(value) + "'");
  if (m.wsl) m.conclusions.push_back("this is WSL: Windows shares the device, and its own programs take memory that Linux cannot see");
  if (m.container) m.conclusions.push_back("this is a container: limits set for it count, not only the machine's memory");
}

}  // namespace plimsoll
