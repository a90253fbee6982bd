// What a compiled train step needs, in the parts that jax.stages.Compiled.memory_analysis() has. Arguments, outputs and aliases
// follow from the shapes alone; the temporaries depend on fusion, order and packing, which are modelled, so they have a range.
#pragma once

#include "job/job.h"
#include "step/train.h"
#include "xla/program.h"

namespace plimsoll {

struct Modelled {
  int64_t usual = 0, low = 0, high = 0;  // bytes
};

struct XlaMemory {
  DeviceKind device = DeviceKind::gpu;
  int64_t parameters = 0, trainable = 0;  // elements
  std::string sample;                     // as in Simulation
  std::vector<ParameterRecord> parameter_list;

  int64_t arguments = 0, outputs = 0, aliased = 0;                // bytes
  int64_t parameter_bytes = 0, state_bytes = 0, batch_bytes = 0;  // of the arguments; state: of the optimizer, EMA, accumulators
  int64_t argument_padding = 0, temporary_padding = 0;            // of them, added by a TPU's tiles
  Modelled temporaries;                                           // the one allocation they are packed into
  Modelled program;            // arguments + outputs - aliased + temporaries. Low: temporaries may use outputs before those are written
  int64_t residuals = 0;       // of the temporaries, made by the forward pass and alive where the derivative begins
  int64_t packing = 0;         // of the allocation, more than is alive at its peak
  size_t ops = 0, stored = 0;  // of the program, and those that have memory

  Trace trace;                                        // every array from its op to its last use: one step
  std::vector<int64_t> argument_sizes, output_sizes;  // separate allocations on the device; outputs: those that are not aliased
  std::vector<bool> is_state;                         // by argument: replaced by an output
};

XlaMemory compile(const Job& job, DeviceKind device);

// What the device's allocator is asked for in two steps: arguments and outputs one by one, temporaries as one block.
Trace allocator_trace(const XlaMemory& memory, int64_t temporaries);

}  // namespace plimsoll
