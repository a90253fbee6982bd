// How a model is best spread over many devices: every layout that is possible (tensor, pipeline, context, expert and data parallelism,
// micro-batch, recomputation), each executed on its largest stages, the fastest first.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "estimate/fit.h"
#include "plan/step_time.h"

namespace plimsoll {

struct LayoutRequest {
  Job job;  // resolved; its batch x accumulation is of one device unless `global_batch` says otherwise
  TargetDevice device;
  int64_t world = 1;
  int64_t global_batch = 0;                       // samples of an optimizer step; 0: about four million tokens, as large runs have
  std::function<void(size_t executed)> progress;  // may be empty
};

struct Layout {
  Job job;
  DeviceMemory memory;
  Verdict verdict = Verdict::unknown;
  Bytes margin;
  std::optional<StepTime> time;
};

struct LayoutPlan {
  LayoutRequest request;
  int64_t global_batch = 0;
  size_t possible = 0, executed = 0;
  std::vector<Layout> fitting;     // the fastest first
  std::optional<Layout> smallest;  // of those that were executed, when none fits
};

// An Error when no layout is possible at all.
LayoutPlan plan_layouts(const LayoutRequest& request);

}  // namespace plimsoll
