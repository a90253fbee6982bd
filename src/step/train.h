// The training loop, as a program: what the usual PyTorch script does, step by step, on a tape.
#pragma once

#include <string>
#include <vector>

#include "job/job.h"
#include "tensor/dataflow.h"
#include "trace/trace.h"
#include "util/bytes.h"

namespace plimsoll {

// What a run keeps outside the device's allocator.
struct HostSide {
  Bytes weights;       // of swapped blocks
  Bytes optimizer;     // offloaded: copies of weights, gradients and states
  Bytes ema;           // the average of the weights in RAM
  Bytes ema_transfer;  // beside it while it is updated
  Bytes managed;       // paged optimizer states: on the device as much as fits, the rest in RAM
};

struct ParameterRecord {
  std::string name;  // "model.layers.0.mlp.up_proj.weight"
  int64_t elements = 0;
  bool trained = true;
};

struct Simulation {
  Trace trace;
  HostSide host;
  int64_t parameters = 0;  // elements
  int64_t trainable = 0;
  int64_t activations_on_host = 0;  // bytes at their peak
  std::string sample;               // what one is, of a model that makes its inputs itself
  std::vector<ParameterRecord> parameter_list;
  Work work;  // of the last of job.steps
};

// One process of a job that has no problems (program/program.h, which is the way to here). `details`: with the shapes of tensors and a list
// of the parameters. `work`: with what a step computes and moves.
Simulation simulate_training(const Job& job, bool details, bool work);
// Micro-steps of an accumulation that are run: from the second on, every one does the same as the one before it.
int64_t simulated_micro_steps(const Job& job);

// The forward pass of a JAX job as a graph: what value_and_grad is given. Parameters, inputs and the loss are values of it.
struct RecordedForward {
  std::vector<DataflowValue> values;
  ValueId loss = 0;
  Trace trace;             // scopes and names
  int64_t parameters = 0;  // elements
  int64_t trainable = 0;
  std::string sample;
  std::vector<ParameterRecord> parameter_list;
};
RecordedForward record_forward(const Job& job);
// Models that have none.
void check_forward(const Job& job, Problems& out);

// What the steps of that trace are, in order: "step 1", "step 2", "longest sample", "evaluation", "sampling".
std::vector<std::string> step_names(const Job& job);

}  // namespace plimsoll
