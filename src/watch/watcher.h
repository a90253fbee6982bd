// Looks at what was asked for, again and again: the one place where samples come from while a run is alive.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hardware/meters.h"
#include "watch/host_reader.h"
#include "watch/log_follower.h"
#include "watch/process_tree.h"

namespace plimsoll {

struct WatchTarget {
  std::optional<int64_t> pid;
  std::vector<int> devices;  // numbers; empty: those the process uses, or all
  std::string log;           // a path; empty: none
};

class Watcher {
 public:
  // Throws an Error for a process, a device or a log that is not there.
  Watcher(const Surroundings& s, const Machine& machine, const WatchTarget& target);

  Sample look(double now);
  bool ended() const { return tree_ && tree_->ended(); }  // the process; a log and a device do not end
  const ProcessTree* tree() const { return tree_.get(); }
  const std::vector<DetectedDevice>& devices() const { return meters_.devices(); }

 private:
  int number_of(size_t device) const;
  std::vector<DeviceSample> read_devices(Sample& sample);

  Surroundings s_;
  WatchTarget target_;
  std::unique_ptr<ProcessTree> tree_;
  std::unique_ptr<LogFollower> log_;
  HostReader host_;
  DeviceMeters meters_;
  std::vector<bool> lost_;
};

}  // namespace plimsoll
