// The change that makes a run fit and disturbs it least: levers one after another, in the order of what they cost, until one fits. Unlike
// what_if, which executes them all.
#pragma once

#include <optional>

#include "plan/levers.h"

namespace plimsoll {

struct CheapestChange {
  std::optional<LeverEffect> fits;    // the first that fits; none: no single change does
  std::optional<LeverEffect> tight;   // the first that is tight, where the run does not fit and nothing fits
  size_t executed = 0, left_out = 0;  // levers; left out: those of which a bound says that they cannot fit
};

// The order in which they are tried: the same result before other numerics before another training, then by what they cost.
std::vector<Lever> by_preference(std::vector<Lever> levers);

// The job's model must be resolved. `now`: the job as it is, on the device asked about; `parameters`: those of the rank that was executed.
// Told after each, `progress` may end it: Cancelled.
CheapestChange cheapest_change(Runs& runs, const Job& job, const Fit& now, int64_t parameters, const OnProgress& progress = {});

}  // namespace plimsoll
