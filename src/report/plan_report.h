// A plan as a document and JSON: the answer first, then what it is made of and what else there is.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "report/document.h"
#include "report/schema_versions.h"

namespace plimsoll {

doc::Document plan_document(const Plan& plan);
nlohmann::ordered_json plan_json(const Plan& plan);
nlohmann::ordered_json planned_json(const PlannedRun& run);
// Whole lines, for whoever sees nothing else of the plan: what it does to the result of training, and another global batch. Empty: neither.
std::string change_text(const Plan& plan);

// How such a run is started.
using CommandOf = std::function<std::string(const PlannedRun&)>;

// One row per device: what to set, what that needs, how fast it is, and the command.
doc::Document plans_document(const std::vector<Plan>& plans, const CommandOf& command);
// The same as JSON: the plans, each with its command; null where there is none.
nlohmann::ordered_json plans_json(const std::vector<Plan>& plans, const CommandOf& command);

// The parts of a step; null: not known.
nlohmann::ordered_json time_json(const std::optional<StepTime>& time);

// Memory along, seconds a sample upwards; the limit is a line.
doc::Blocks front_blocks(const Plan& plan);

}  // namespace plimsoll
