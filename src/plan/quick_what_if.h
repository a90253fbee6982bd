// What each change saves, for somebody who reads the first few: of a model that loops over tokens the changes are compared by short runs
// (short_runs.h), and only those that stand first are executed in full. Ended early, it has what was executed by then.
#pragma once

#include <string>
#include <vector>

#include "plan/levers.h"

namespace plimsoll {

struct QuickWhatIf {
  WhatIf all;                         // effects in the order in which to try them: see by_use()
  std::vector<std::string> by_short;  // names of those that were not executed in full
  bool unfinished = false;            // `progress` ended it
};

// `first`: how many at the top of the order are executed in full. The job's model must be resolved.
QuickWhatIf quick_what_if(Runs& runs, const Job& job, const std::optional<TargetDevice>& target, size_t first,
                          const OnProgress& progress = {});

// Those that make it fit before those that leave it tight and the rest; among the former the least disturbing first (cheapest_change.h),
// among the rest those with the same result, and then by what they save.
void by_use(std::vector<LeverEffect>& effects);

}  // namespace plimsoll
