// How a model is best spread over many devices: every layout that is possible, of PyTorch's own kinds and of Megatron-LM
// (layout_kinds.h), with every micro-batch and recomputation, each executed on its largest ranks; the fastest first.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan/candidate.h"

namespace plimsoll {

struct LayoutRequest {
  Job job;  // resolved; how it is spread already does not matter
  TargetDevice device;
  int64_t world = 1;
  int64_t global_batch = 0;     // samples of an optimizer step; 0: the job's own, else about four million tokens, as large runs have
  std::set<std::string> kinds;  // names of layout_kinds(); empty: all
  std::set<std::string> keep;   // of the knobs of a plan: "batch" and "checkpointing" stay as they are
  double leave_free = 0;        // of the device, beside the interval
  Cluster cluster;
  Calibration calibration;
  OnProgress progress;
};

struct Layout {
  std::string kind;  // "FSDP2"
  Patch changes;
  Job job;
  Need need;
  Bytes margin;  // of the device, at the expected need
  int64_t replicas = 1;
  int64_t global_batch = 0;
  bool confirmed = false;  // its need is that of all ranks in full, as `estimate` has it; else of those that usually need most
};

// How many of those that fit are confirmed, beside the fastest of each kind.
constexpr size_t kShownLayouts = 10;

// A larger cluster or device on which something would fit.
struct LargerGoal {
  std::string what, flags;
  Layout layout;
};

struct LayoutPlan {
  LayoutRequest request;
  int64_t global_batch = 0;
  size_t possible = 0, executed = 0;
  std::vector<Layout> fitting;                                // the fastest first; those that people see are confirmed
  std::optional<Layout> smallest;                             // of those that were executed
  std::vector<LargerGoal> would_fit;                          // when nothing fits
  std::vector<std::pair<std::string, std::string>> left_out;  // kinds that this model or job cannot have, and why
};

bool fits(const Layout& layout, const LayoutRequest& request);
// With all its ranks executed in full.
Layout confirmed(Layout layout, const LayoutRequest& request);

// An Error when no layout is possible at all.
LayoutPlan plan_layouts(const LayoutRequest& request);
// With as few devices as will do: one, two, four, ... up to `request.world`.
LayoutPlan plan_fewest_devices(LayoutRequest request);

}  // namespace plimsoll
