// The training loop, as a program: what the usual PyTorch script does, step by step, on a tape.
#pragma once

#include <string>
#include <vector>

#include "job/job.h"
#include "trace/trace.h"

namespace plimsoll {

struct Simulation {
  Trace trace;
  int64_t parameters = 0;  // elements
  int64_t trainable = 0;
  int64_t activations_on_host = 0;  // bytes at their peak
};

Simulation simulate(const Job& job);

// What the steps of that trace are, in order: "step 1", "step 2", "longest sample", "evaluation", "sampling".
std::vector<std::string> step_names(const Job& job);

}  // namespace plimsoll
