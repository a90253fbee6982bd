// What each change alone, on the run as it is, saves and costs; and why the rest does nothing here.
#pragma once

#include "plan/plan.h"

namespace plimsoll {

// What saves comes first, by how little it disturbs, and by how much it saves for the time it costs; then what does nothing, takes more, or
// cannot be done. What `space` excludes is left out; null: nothing is.
std::vector<QuickFix> quick_fixes(Evaluator& evaluator, size_t device, const Space* space = nullptr);

}  // namespace plimsoll
