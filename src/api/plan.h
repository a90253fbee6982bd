// Plans for a run: what `plimsoll plan` and plimsoll_plan() do between the question and the answer.
#pragma once

#include "api/ai_toolkit_plan.h"

namespace plimsoll {

// Throws an Error unless it is the name of rules of others.
void check_rules(const std::string& rules);

// By its `rules`. A request without them is for a search of our own.
ExitCode answer_plan(const nlohmann::json& request, const Show& show);

}  // namespace plimsoll
