// What the layouts of trainers with pipelines of their own (Megatron-LM, torchtitan) add to the time of their kernels: the pipeline's
// bubble and the traffic between ranks. Estimates for ranking; one file for each trainer.
#pragma once

#include "job/job.h"
#include "plan/interconnect.h"
#include "plan/step_time.h"
#include "step/train.h"

namespace plimsoll {

struct LayoutTime {
  double bubble = 0;         // seconds in which a stage waits for others
  double communication = 0;  // as far as nothing hides it
};

// `t` has the times of the kernels of the simulated stage.
LayoutTime megatron_time(const Job& job, const Simulation& simulation, const StepTime& t, const Interconnect& links);
LayoutTime torchtitan_time(const Job& job, const Simulation& simulation, const StepTime& t, const Interconnect& links);

inline double compute_seconds(const StepTime& t) { return t.forward + t.recompute + t.backward; }
// Of 1F1B and GPipe, and of interleaved schedules by their chunks. `micro_batch`: seconds of all kernels of one.
inline double bubble_seconds(double micro_batch, int64_t stages, int64_t chunks) {
  return micro_batch * static_cast<double>(stages - 1) / static_cast<double>(chunks);
}

constexpr double kHiddenTraffic = 0.8;  // of the time of kernels, behind which traffic between replicas can hide

}  // namespace plimsoll
