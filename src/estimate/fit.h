// Whether a run fits a device: the interval of what it needs against what the device has, and where it would fail if it does not.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "allocator/cuda_oom.h"
#include "estimate/device_memory.h"
#include "estimate/verdict.h"
#include "hardware/capacity.h"
#include "hardware/machine.h"
#include "job/job.h"
#include "program/run.h"

namespace plimsoll {

// A device that a run is asked to fit: of the catalogue, or of this machine.
struct TargetDevice {
  DeviceSpec spec;
  std::string name;                  // for people
  std::optional<Capacity> capacity;  // none: not established
  Bytes others;                      // in use by other processes
};

TargetDevice target_device(const DeviceSpec& spec);
TargetDevice target_device(const DetectedDevice& device);

// Where the first allocation failed.
struct FirstFailure {
  std::string step;  // "step 1", "evaluation"
  Phase phase = Phase::setup;
  std::string module, op;
  OomNumbers numbers;
};

struct Fit {
  TargetDevice device;
  DeviceMemory memory;
  Verdict verdict = Verdict::unknown;
  std::string reason;   // one sentence
  Bytes margin;         // what is left at the device peak; negative: what is missing
  int64_t retries = 0;  // how often the allocator must give its cache back to go on
  std::optional<FirstFailure> failure;
};

// What a device is to the execution of a job.
Target target_of(const Job& job, const std::optional<DeviceSpec>& device);

// Asks one job about many devices; it is executed once for each kind of device.
class Fitting {
 public:
  // The job's model is resolved. `runs`: executions to share with other questions; they must outlive this.
  explicit Fitting(Job job, Detail detail = {}) : own_(std::make_unique<Runs>()), runs_(*own_), job_(std::move(job)), detail_(detail) {}
  Fitting(Runs& runs, Job job, Detail detail = {}) : runs_(runs), job_(std::move(job)), detail_(detail) {}

  // `fits` when even the upper end of the need is below the lower end of what there is; `tight` when it should go, but inside the
  // interval or only by giving back the cache; `does not fit` when the allocator runs out.
  Fit replay_on(const TargetDevice& device);
  // The same without a replay on a device of that size: a need above the capacity does not fit, whatever the cache would give back.
  Fit need_on(const TargetDevice& device);
  std::shared_ptr<const Run> run(const TargetDevice& device) { return runs_.execute(job_, target_of(job_, device.spec), detail_); }

 private:
  std::unique_ptr<Runs> own_;
  Runs& runs_;
  Job job_;
  Detail detail_;
};

}  // namespace plimsoll
