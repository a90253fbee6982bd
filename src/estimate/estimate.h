// What a run needs, for a person: the peak, when and where it is, and what it is made of. Every byte has one label and
// children sum to their parent.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "allocator/timeline.h"
#include "estimate/device_memory.h"
#include "estimate/host_memory.h"
#include "estimate/xla_memory.h"
#include "job/job.h"

namespace plimsoll {

struct TreeNode {
  std::string name;
  Bytes bytes;
  int64_t repeats = 1;             // numbered siblings (layers.0 ... layers.31) are one node; this is how many
  std::vector<TreeNode> children;  // by size, largest first; their sum is `bytes`
};

struct LiveTensor {
  Bytes bytes;
  Category category;
  std::string module;
  std::string op;
  int64_t count = 1;  // tensors alike in everything but the layer's number
  std::string shape;  // "(8, 1024, 768) bfloat16"; empty: not known
};

struct StepEstimate {
  std::string name;  // "step 1", "evaluation"
  Bytes peak;
  Phase phase;
  ByPhase by_phase;
};

// The largest use in one slice of the worst step's events.
struct CurvePoint {
  Bytes bytes;
  Phase phase;
};

// One of the ranks that differ.
struct RankPeak {
  std::string name;        // "stage 3"
  int64_t parameters = 0;  // elements
  Bytes peak;              // allocated
};

struct Estimate {
  Job job;
  int64_t parameters = 0, trainable = 0;
  std::string sample;                           // what one is, of a model that makes its inputs itself
  std::vector<ParameterRecord> parameter_list;  // when tensors are asked for
  Bytes peak;                                   // the sum of the tensors alive
  std::string device, vendor;                   // whose overheads they are; empty: some NVIDIA card's
  std::optional<DeviceMemory> memory;           // under PyTorch's caching allocator, with its default settings; none beyond 1 PiB
  ByStream pools{};                             // the most that each stream's pool has in the worst step: reserved is their sum at least
  std::vector<RankPeak> ranks;                  // those that differ, when there are several: this is of the largest
  std::vector<StepEstimate> steps;
  size_t worst = 0;
  std::string peak_module, peak_op;
  Phase peak_phase = Phase::setup;
  TreeNode by_category;                             // categories, each split by module
  TreeNode by_module;                               // modules as in Python
  std::array<Bytes, kCategories> category_peaks{};  // the most that each has in the worst step, not all at once
  std::vector<LiveTensor> top;
  std::vector<CurvePoint> curve;   // the worst step over time
  HostFacts host_facts;            // for host_fit.h and unified_memory.h
  std::optional<XlaEstimate> xla;  // of framework jax, in the place of `memory`; its one step is every step
};

// Executes the job (its model must be resolved) and explains the result. Workspaces and overheads are those of `device`, or of most NVIDIA
// cards. `runs`: executions to share with other questions about the job.
Estimate estimate(Runs& runs, const Job& job, size_t top_tensors = 10, const std::optional<DeviceSpec>& device = {});
Estimate estimate(const Job& job, size_t top_tensors = 10, const std::optional<DeviceSpec>& device = {});

}  // namespace plimsoll
