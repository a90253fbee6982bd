// The smallest change with which a run fits: the class that disturbs training least, in it as few changes as will do, and of those the ones
// that slow it down least. Not the fastest recipe: that is plan.h. The global batch is kept.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace plimsoll {

struct ChangeRequest {
  Job job;  // resolved
  TargetDevice device;
  Constraints constraints;
  double leave_free = 0;       // of the device, beside the interval
  std::set<std::string> last;  // names of levers that are taken only where the others of their class are not enough
  // Asked about what fits, the best first, until it says yes: whether it can be carried out, and then fits. Empty: always.
  std::function<bool(const PlannedRun&)> accept;
  OnProgress progress;
  const Runs* known = nullptr;
};

// One change, on top of those before it.
struct ChangeStep {
  Lever lever;
  PlannedRun run;
  std::optional<Bytes> saving;  // of device memory; none: without the next ones it cannot be run
  double slower = 0;            // seconds a sample as a part of what they were; not a number: not known
};

struct SmallestChange {
  Bytes limit;  // for the upper end of the need
  PlannedRun as_is;
  bool fits_as_it_is = false;
  LeverKind kind = LeverKind::same_result;
  std::optional<PlannedRun> run;  // none: as it is it fits, or nothing does
  std::vector<ChangeStep> steps;
  bool every_smaller_one = true;  // was executed and does not fit; false: there were too many, and the changes were found by a search
  std::optional<Shortage> shortage;
  size_t executed = 0;  // candidates
};

// Throws an Error when the run as it is cannot be executed, or the device's memory is not known.
SmallestChange smallest_change(const ChangeRequest& request);

}  // namespace plimsoll
