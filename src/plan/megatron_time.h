// What a Megatron layout adds to the time of its kernels: the pipeline's bubble and the traffic between ranks. Estimates for ranking.
#pragma once

#include "job/job.h"
#include "plan/links.h"
#include "step/train.h"

namespace plimsoll {

struct LayoutTime {
  double bubble = 0;         // seconds in which a stage waits for others
  double communication = 0;  // as far as nothing hides it
};

// `compute`: seconds of all micro-batches' kernels on the simulated stage.
LayoutTime megatron_time(const Job& job, const Simulation& simulation, double compute, const Links& links);

}  // namespace plimsoll
