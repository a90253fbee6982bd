#include "watch/prediction.h"

#include "plan/step_time.h"

namespace plimsoll {

Prediction predict(const Job& job, const std::optional<TargetDevice>& device, bool calibrated) {
  const std::optional<DeviceSpec> spec = device ? std::optional(device->spec) : std::nullopt;
  Estimate e = estimate(job, 0, spec);
  Prediction p;
  p.model = job.model;
  p.batch = job.batch;
  if (device && e.memory) {
    p.run = measured_run(e, device_label(*device));
    p.run->predicted = e.memory->device.bytes;
    if (const StepTimeAnswer step = step_time(job, device->spec); step.time) p.run->predicted_seconds = step.time->seconds;
    const auto c = calibrated ? correction(*p.run, e.memory->device, read_measured_runs(measured_runs_file())) : std::nullopt;
    if (c) apply(*c, *e.memory);
    p.corrected = c.has_value();
    p.device = e.memory->device;
    Job more = job;
    more.batch *= 2;
    problem_in([&] {  // a batch that the job perhaps cannot have
      const Estimate twice = estimate(more, 0, spec);
      if (twice.memory) p.doubled = twice.memory->device;
    });
  }
  if (job.program.framework == Framework::pytorch) {
    const HostEstimate host = host_memory(job, e.host_facts, reserve_of({0}, "counted apart"));
    p.host = host.steady_peak;
    p.shm = host.shm;
    if (!device) *p.host += ByteRange::exact(e.peak);
  }
  return p;
}

}  // namespace plimsoll
