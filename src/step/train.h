// The training loop, as a program: what the usual PyTorch script does, step by step, on a tape.
#pragma once

#include <string>
#include <vector>

#include "job/job.h"
#include "trace/trace.h"
#include "util/bytes.h"

namespace plimsoll {

// What a run keeps outside the device's allocator.
struct HostSide {
  Bytes ema;           // the average of the weights in RAM
  Bytes ema_transfer;  // beside it while it is updated
  Bytes managed;       // paged optimizer states: on the device as much as fits, the rest in RAM
};

struct Simulation {
  Trace trace;
  HostSide host;
  int64_t parameters = 0;  // elements
  int64_t trainable = 0;
};

Simulation simulate(const Job& job);

// What the steps of that trace are, in order: "step 1", "step 2", "longest sample", "evaluation", "sampling".
std::vector<std::string> step_names(const Job& job);

}  // namespace plimsoll
