// The training loop, as a program: what the usual PyTorch script does, step by step, on a tape.
#pragma once

#include "job/job.h"
#include "trace/trace.h"

namespace plimsoll {

struct Simulation {
  Trace trace;
  int64_t parameters = 0;  // elements
  int64_t trainable = 0;
};

Simulation simulate(const Job& job);

}  // namespace plimsoll
