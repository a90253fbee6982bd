// Measured peaks of earlier runs on this machine, and what they say about the next run that is like them. One JSON line a run, in
// $XDG_STATE_HOME/plimsoll/measured.jsonl. Alike: the same model (family and parameters), precision and optimizer on the same kind of
// device.
#pragma once

#include <string>
#include <vector>

#include "estimate/device_memory.h"
#include "estimate/estimate.h"
#include "estimate/fit.h"

namespace plimsoll {

struct MeasuredRun {
  std::string machine, device;  // the host's name, the device's
  std::string family, precision, optimizer;
  int64_t parameters = 0;
  Bytes predicted, measured;  // peak on the device of one process, or of the tensors (kTensors); predicted without any correction
  std::string source;         // "watch", "run", "measure"
  int64_t time = 0;           // seconds since 1970
  // Of one optimizer step; 0: not known. Predicted without any correction.
  double predicted_seconds = 0, measured_seconds = 0;
};

// The device of runs of `measure` with one thread: tensors in the host's memory, counted to the byte. They say nothing of a device's
// overheads.
inline constexpr const char* kTensors = "tensors";

// What a device is called there: by the catalogue, or by its driver.
std::string device_label(const TargetDevice& device);

// What a run is recognised by; predicted and measured are open. `device`: its label.
MeasuredRun measured_run(const Estimate& e, const std::string& device);
bool alike(const MeasuredRun& a, const MeasuredRun& b);

// The file of this user; empty when neither XDG_STATE_HOME nor HOME is set.
std::string measured_runs_file();
// None when there is no such file. Lines that cannot be read are left out.
std::vector<MeasuredRun> read_measured_runs(const std::string& file);
// Throws an Error when the line cannot be written.
void add_measured_run(const std::string& file, const MeasuredRun& run);

// How much longer a step takes than predicted: the median of those of `runs` that are like it and were timed.
struct StepRatio {
  double factor = 1;
  int64_t runs = 0;
};
std::optional<StepRatio> step_ratio(const MeasuredRun& run, const std::vector<MeasuredRun>& runs);

// The correction of `device`, as predicted for `run`, by those of `runs` that are like it; none without any. A run of another size
// leaves open whether its residual is a constant or grows with the run: the middle of both is taken, and the interval holds both.
std::optional<Correction> correction(const MeasuredRun& run, const ByteRange& device, const std::vector<MeasuredRun>& runs);
// The device's range afterwards: around the corrected value, narrower by the root of one more than the number of runs, and never narrower
// than their own spread.
void apply(const Correction& c, DeviceMemory& memory);
// And the verdict and margin that follow.
void apply(const Correction& c, Fit& fit);

// By what was measured on this machine before: each of `fits` on the device it was measured on, and the estimate's own. Where a device was
// not measured, its range is moved by what the tensors differed by, and stays as wide.
void calibrate(const Estimate& e, std::vector<Fit>& fits);
void calibrate(Estimate& e);
// Of the sum of the tensors, by like runs of `measure`; none without any.
std::optional<Correction> tensors_correction(const Estimate& e);

// Keeps a run for the next estimate of one like it: now, in the file of this user. What to say about that; empty: there was nothing to
// keep.
std::string keep_measured_run(MeasuredRun run);

}  // namespace plimsoll
