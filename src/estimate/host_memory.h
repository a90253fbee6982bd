// The RAM of the machine that trains: what each part takes, and the three moments that decide: the steady state, the saving of a
// checkpoint, the loading of the model. What the device holds is not in it; unified_memory.h puts both into one pool.
#pragma once

#include <string>
#include <vector>

#include "estimate/byte_range.h"
#include "job/job.h"
#include "trace/trace.h"

namespace plimsoll {

// What the host side needs to know of a simulated run, of one process.
struct HostFacts {
  Bytes parameters, buffers, optimizer_states, ema;  // alive when the run ends: what a checkpoint holds
  Bytes largest;                                     // the largest storage among them
  Bytes weights;                                     // of blocks that are swapped in and out
  Bytes optimizer;                                   // an offloaded one: pinned copies of weights, gradients, and states
  Bytes activations;                                 // kept on the host between forward and backward
  Bytes host_ema, ema_transfer;                      // an average in RAM, and what is beside it while it is updated
  Bytes managed;                                     // paged optimizer states: on the device as much as fits, the rest in RAM

  Bytes model() const { return parameters + buffers; }
  Bytes checkpoint() const { return model() + optimizer_states + managed + ema + host_ema; }
};

HostFacts host_facts(const Trace& trace);

struct HostRow {
  std::string name;
  ByteRange size;      // of all processes of this machine
  std::string source;  // the formula in words, and where its numbers come from
};

// What else the machine does. In a container with a limit of its own it is nothing.
struct SystemReserve {
  ByteRange size;
  std::string source;
};
SystemReserve default_reserve();
SystemReserve reserve_of(Bytes size, std::string source);

struct HostEstimate {
  std::vector<HostRow> steady;   // while it trains
  std::vector<HostRow> saving;   // beside `steady`, while a checkpoint is written
  std::vector<HostRow> loading;  // instead of what does not exist yet: workers and batches
  ByteRange steady_peak, save_peak, load_peak;
  ByteRange shm;  // of it in /dev/shm, all processes together
  Bytes disk;     // a cache on disk; RAM has only what the kernel can take back
  std::vector<std::string> notes;

  const ByteRange& peak() const;  // the largest of the three, by its best estimate
};

// The job's host settings must pass check(). Sizes that overflow throw an Error.
HostEstimate host_memory(const Job& job, const HostFacts& facts, const SystemReserve& system = default_reserve());

}  // namespace plimsoll
