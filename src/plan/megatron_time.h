// What a Megatron layout adds to the time of its kernels: the pipeline's bubble and the traffic between ranks. Estimates for ranking.
#pragma once

#include "job/job.h"
#include "step/train.h"

namespace plimsoll {

struct LayoutTime {
  double bubble = 0;         // seconds in which a stage waits for others
  double communication = 0;  // as far as nothing hides it
};

// `compute`: seconds of all micro-batches' kernels on the simulated stage. `node`: bytes a second between devices of one node.
LayoutTime megatron_time(const Job& job, const Simulation& simulation, double compute, double node);

constexpr int64_t kDevicesOfNode = 8;

}  // namespace plimsoll
