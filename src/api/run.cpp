#include "api/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "estimate/calibration.h"
#include "estimate/fit.h"
#include "hardware/detect.h"
#include "job/config.h"
#include "supervise/dry_run.h"
#include "supervise/shell_command.h"
#include "util/outcome.h"

namespace plimsoll {

namespace {

// The run; refused when the command is none that can be read, or its model is not known. It is supervised all the same.
Outcome<Job> job_of(const std::vector<std::string>& command) {
  return outcome_of([&] {
    JobRequest request;
    request.run = command;
    if (const auto shell = shell_command(command)) request.run = {shell->file ? command[shell->word] : training_line(shell->script)};
    return request.job();
  });
}

// The devices that were named, else those that are here; an unknown name is the user's mistake, no device at all is not.
std::vector<TargetDevice> devices_of(DeviceRequest request) {
  if (!request.names.empty() || !request.group.empty()) return request.devices();
  if (visible_devices().empty()) return {};
  request.names = {"this"};
  return request.devices();
}

// What was measured here before counts, unless it shall not.
std::vector<Fit> corrected_fits(const Job& job, const std::vector<TargetDevice>& devices, bool calibrated) {
  Runs runs;
  std::vector<Fit> fits = fits_of(runs, job, devices);
  if (calibrated) calibrate(estimate(runs, job, 0, only_device(devices)), fits);
  return fits;
}

Fit fit_of(Job job, int64_t batch, int64_t share, const TargetDevice& device, bool calibrated) {
  job.batch = batch;
  job.accumulation = share / batch;
  return corrected_fits(job, {device}, calibrated).front();
}

// By halving: what a step needs grows with its micro-batch.
int64_t largest_that_fits(const Job& job, int64_t below, const TargetDevice& device, bool calibrated) {
  const int64_t share = job.batch * job.accumulation;
  std::vector<int64_t> sizes;
  for (int64_t b = 1; b < below; ++b)
    if (share % b == 0) sizes.push_back(b);
  const auto first_too_large = std::partition_point(sizes.begin(), sizes.end(), [&](int64_t b) {
    const Verdict v = fit_of(job, b, share, device, calibrated).verdict;
    return v == Verdict::fits || v == Verdict::tight;
  });
  return first_too_large == sizes.begin() ? 0 : *std::prev(first_too_large);
}

void add_estimate(SupervisorRequest& out, const Job& job, const std::vector<TargetDevice>& devices, bool calibrated) {
  const Outcome<std::vector<Fit>> fits = outcome_of([&] { return corrected_fits(job, devices, calibrated); });
  if (!fits) {
    out.first_notes.push_back(std::string("no estimate: ") + fits.refused->what());
    return;
  }
  for (const Fit& fit : *fits)
    if (fit.verdict != Verdict::fits && fit.verdict != Verdict::unknown)
      out.first_notes.push_back(fmt::format("the estimate says that it {} on {}: {}", to_string(fit.verdict), fit.device.name, fit.reason));
  // A failure tells how large the device is; before one, and without its numbers, what was named counts.
  out.predict = [job, devices, calibrated](int64_t failed, std::optional<int64_t> limit) -> int64_t {
    std::vector<TargetDevice> asked = devices;
    if (limit && *limit > 0) {
      DeviceRequest by_size;
      by_size.names = {fmt::format("{}B", *limit)};
      asked = by_size.devices();
    }
    if (asked.empty()) return 0;
    // 0 also where a size cannot be simulated.
    return outcome_of([&] { return largest_that_fits(job, failed, asked.front(), calibrated); }).value.value_or(0);
  };
}

// The devices of this machine are looked at while it runs; what was measured is kept beside what was predicted for the same settings.
void add_measuring(SupervisorRequest& out, const Job& job) {
  const Surroundings here = Surroundings::here();
  std::vector<DetectedDevice> devices;
  for (const DetectedDevice& d : detect(here).devices)
    if (d.visible != Visible::no && !d.split) devices.push_back(d);
  if (devices.empty()) return;
  out.peak = std::make_shared<DevicePeak>(here, devices);
  out.measured = [job](const RunValues& values, const DevicePeak::Most& most) -> std::string {
    Job as_run = job;
    if (values.batch > 0) as_run.batch = values.batch;
    if (values.accumulation > 0) as_run.accumulation = values.accumulation;
    const Outcome<std::string> kept = outcome_of([&]() -> std::string {
      const TargetDevice device = target_device(most.device);
      const Estimate e = estimate(as_run, 0, device.spec);
      if (!e.memory) return "";
      MeasuredRun run = measured_run(e, device_label(device));
      run.predicted = e.memory->device.bytes;
      run.measured = most.bytes;
      run.source = "run";
      return keep_measured_run(run);
    });
    return kept ? *kept : std::string("what was measured is not kept: ") + kept.refused->what();
  };
}

}  // namespace

int answer(const RunRequest& request, const std::function<void(const std::string&)>& print) {
  if (request.json && !request.dry)
    throw Error("[run] --json without --dry-run: stdout is the command's own", "every decision is a line of JSON in --events FILE",
                ExitCode::usage);
  SupervisorRequest supervised = request.supervisor;
  if (const Outcome<Job> job = job_of(supervised.command)) {
    const std::vector<TargetDevice> devices = devices_of(request.devices);
    add_estimate(supervised, *job, devices, request.calibrated);
    if (!request.dry) add_measuring(supervised, *job);
  }
  if (!request.dry) return supervise(supervised);
  const DryRun described = dry_run(supervised);
  print(request.json ? dump(to_json(described), 2) + "\n" : to_text(described));
  return 0;
}

}  // namespace plimsoll
