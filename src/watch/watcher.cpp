#include "watch/watcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// The devices of the machine that are asked for; those that are split are represented by their slices.
std::vector<DetectedDevice> chosen(const Machine& machine, const std::vector<int>& numbers) {
  std::vector<DetectedDevice> out;
  for (const DetectedDevice& d : machine.devices) {
    const bool wanted = numbers.empty() || std::find(numbers.begin(), numbers.end(), d.index) != numbers.end();
    if (wanted && !d.split) out.push_back(d);
  }
  for (const int n : numbers)
    if (std::none_of(out.begin(), out.end(), [n](const DetectedDevice& d) { return d.index == n; }))
      throw Error(fmt::format("[watch] there is no device {}", n),
                  machine.devices.empty() ? "this machine shows no GPU; `plimsoll doctor` says what was looked at"
                                          : fmt::format("devices here: 0 to {}", machine.devices.size() - 1),
                  ExitCode::no_hardware);
  return out;
}

}  // namespace

Watcher::Watcher(const Surroundings& s, const Machine& machine, const WatchTarget& target)
    : s_(s),
      target_(target),
      tree_(target.pid ? std::make_unique<ProcessTree>(s, *target.pid) : nullptr),
      log_(target.log.empty() ? nullptr : std::make_unique<LogFollower>(target.log)),
      host_(s, target.pid ? std::to_string(*target.pid) : "self"),
      meters_(s, chosen(machine, target.devices)),
      lost_(meters_.devices().size(), false) {}

// Slices of different devices have the same numbers: where there are slices, devices are counted.
int Watcher::number_of(size_t device) const {
  const std::vector<DetectedDevice>& all = meters_.devices();
  const bool slices = std::any_of(all.begin(), all.end(), [](const DetectedDevice& d) { return !d.parent_uuid.empty(); });
  return slices ? static_cast<int>(device) : all[device].index;
}

std::vector<DeviceSample> Watcher::read_devices(Sample& sample) {
  std::vector<int64_t> pids;
  for (const ProcessSample& p : sample.processes) pids.push_back(p.pid);
  const std::vector<DeviceReading> readings = meters_.read(pids);
  std::vector<DeviceSample> out;
  for (size_t i = 0; i < readings.size(); ++i) {
    const DetectedDevice& d = meters_.devices()[i];
    const DeviceReading& r = readings[i];
    DeviceSample device;
    device.index = number_of(i);
    device.name = d.name;
    device.unified = d.memory == MemoryKind::unified;
    device.answers = r.answers;
    device.total = d.usable ? d.usable : d.total;
    device.used = r.used;
    device.busy = r.busy;
    for (const DeviceProcess& p : r.processes) {
      const auto ours =
          std::find_if(sample.processes.begin(), sample.processes.end(), [&](const ProcessSample& q) { return q.pid == p.pid; });
      if (ours == sample.processes.end()) {
        device.others.push_back(
            {p.pid, printable(s_.read(fmt::format("/proc/{}/comm", p.pid)).value_or("not seen from here"), 40), p.used});
      } else if (p.used) {
        device.ours = device.ours.value_or(Bytes{0}) + *p.used;
        ours->device = ours->device.value_or(Bytes{0}) + *p.used;
      }
    }
    if (lost_[i] == device.answers)
      sample.events.push_back(
          fmt::format("device {} ({}) {}", device.index, d.name, device.answers ? "answers again" : "does not answer any more"));
    lost_[i] = !device.answers;
    out.push_back(std::move(device));
  }
  return out;
}

Sample Watcher::look(double now) {
  Sample sample;
  sample.time = now;
  if (tree_) sample.processes = tree_->read(now, sample.events);
  sample.devices = read_devices(sample);
  sample.host = host_.read(now);
  if (log_) {
    log_->read(now, sample.events);
    sample.steps = log_->steps(now);
  }
  return sample;
}

}  // namespace plimsoll
