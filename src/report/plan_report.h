// A plan as text and JSON: the answer first, then what it is made of and what else there is.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "report/schema_versions.h"
#include "report/style.h"

namespace plimsoll {

std::string plan_text(const Plan& plan, const Style& style);
nlohmann::ordered_json plan_json(const Plan& plan);
nlohmann::ordered_json planned_json(const PlannedRun& run);

// How such a run is started.
using CommandOf = std::function<std::string(const PlannedRun&)>;

// One row a device: what to set, what that needs, how fast it is, and the command.
std::string plans_table(const std::vector<Plan>& plans, const CommandOf& command, const Style& style);
// The same as JSON: the plans, each with its command; null where there is none.
nlohmann::ordered_json plans_json(const std::vector<Plan>& plans, const CommandOf& command);

// The parts of a step; null: not known.
nlohmann::ordered_json time_json(const std::optional<StepTime>& time);

// Memory along, seconds a sample upwards; the limit is a line.
std::string front_plot(const Plan& plan, const Style& style);

}  // namespace plimsoll
