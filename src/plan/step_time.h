// How long one optimizer step takes on a device: every kernel that the simulated step ran, each as long as its arithmetic or its bytes
// need, whichever is longer (the roofline), and what the host, the links and other devices add. A model, not a measurement: its constants
// and how far published runs are from it are in docs/time.md. Its use is to compare recipes of one job; `Calibration` ties it to a
// step that somebody timed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hardware/catalogue.h"
#include "job/job.h"
#include "plan/interconnect.h"
#include "program/run.h"
#include "step/train.h"
#include "util/bytes.h"

namespace plimsoll {

// What the user's own machine does to every prediction.
struct Calibration {
  double factor = 1;
  std::string source;  // "0.412 s measured, 0.380 s predicted"; empty: none
};

// Seconds of one optimizer step of one device, all micro-steps of its accumulation together.
struct StepTime {
  double seconds = 0;  // the sum of the parts below
  double forward = 0, recompute = 0, backward = 0;
  double optimizer = 0;      // with clipping and the average of the weights
  double transfers = 0;      // between host and device, as far as nothing hides them; with an update on the host
  double communication = 0;  // between devices, as far as backward does not hide it
  double bubble = 0;         // of a pipeline
  double launch = 0;         // what the host needs to launch it all beyond what the kernels take
  double host = 0;           // what it needs in all, hidden or not; no part of the sum
  double flops = 0;          // of all kernels
  double model_flops = 0;    // without recomputation
  double bytes = 0;          // read and written in the device's memory
  double utilisation = 0;    // model_flops as a part of what the device's peak would do in that time
  int64_t kernels = 0;       // launches
  double samples_per_second = 0, tokens_per_second = 0;  // of all devices; no text: 0 tokens
  std::vector<std::string> assumptions;                  // figures that stand for missing ones
};

// `time` is empty where a figure that is needed is not established; `unknown` then says which.
struct StepTimeAnswer {
  std::optional<StepTime> time;
  std::string unknown;
};

// What is executed for the time of a job: of a JAX job, the same model as PyTorch runs it.
Job timed_job(const Job& job);
constexpr Detail kTimed{.work = true, .all_ranks = false};

// `simulation` must have been asked for its work.
StepTimeAnswer step_time(const Job& job, const Simulation& simulation, const DeviceSpec& device, const Calibration& calibration = {},
                         const Cluster& cluster = {});
StepTimeAnswer step_time(const Job& job, const DeviceSpec& device, const Calibration& calibration = {}, const Cluster& cluster = {});

// From a step that took `measured` seconds; an Error when that cannot be compared.
Calibration calibrate(const Job& job, const DeviceSpec& device, double measured, const Cluster& cluster = {});

// One block that can be checkpointed, in the order of execution, in a micro-step without checkpointing.
struct BlockCost {
  std::string module;  // "model.layers.0"
  double seconds = 0;  // of its forward: what recomputing it costs; 0 on a device without figures
  double flops = 0, bytes = 0;
  Bytes kept;    // for backward, beside its result, which is kept either way as the next one's input
  Bytes result;  // what a checkpoint of the next block holds
};
// Empty where the job cannot be run, or is no sequence of blocks.
std::vector<BlockCost> block_costs(const Job& job, const DeviceSpec& device);

}  // namespace plimsoll
