// What was predicted for the run that is watched, beside which the measured figures stand.
#pragma once

#include <optional>
#include <string>

#include "estimate/calibration.h"

namespace plimsoll {

struct Prediction {
  std::string model;
  std::string source;               // where the job was read: "--job run.yaml", "its command line"
  std::optional<ByteRange> device;  // of one process, corrected by earlier runs where there are some
  std::optional<ByteRange> host;    // of all processes of the run, without the system; of a run on the CPU with its tensors
  std::optional<ByteRange> shm;
  std::optional<ByteRange> doubled;  // on the device with twice the batch
  int64_t batch = 0;
  bool corrected = false;
  std::optional<MeasuredRun> run;  // to be kept with what is measured
};

// `device`: none for a run on the CPU.
Prediction predict(const Job& job, const std::optional<TargetDevice>& device, bool calibrated);

}  // namespace plimsoll
