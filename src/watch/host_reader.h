// The machine that a process runs on, as that process meets it: memory, swap, /dev/shm, the limit of its control group, pressure.
#pragma once

#include <string>

#include "hardware/control_groups.h"
#include "hardware/surroundings.h"
#include "watch/sample.h"

namespace plimsoll {

class HostReader {
 public:
  // `process`: a pid, or "self".
  HostReader(const Surroundings& s, std::string process) : s_(s), process_(std::move(process)) {}
  HostSample read(double now);

 private:
  void read_meminfo(HostSample& h) const;
  void read_group(HostSample& h, double now);
  void read_pressure(HostSample& h) const;
  void read_vmstat(HostSample& h, double now);
  void read_cpus(HostSample& h, double now);
  void read_shm(HostSample& h) const;

  Surroundings s_;
  std::string process_;
  std::optional<ControlGroup> own_, group_;  // the nearest that counts kills, and the tightest
  double next_group_ = 0, next_cpus_ = 0, last_time_ = 0;
  int64_t last_in_ = -1, last_out_ = 0, last_refaults_ = 0;
  int64_t last_idle_ = -1, last_all_ = 0;
  std::optional<double> idle_cpus_;
  int64_t cpus_ = 0;
};

}  // namespace plimsoll
