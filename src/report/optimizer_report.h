// The table of what optimizers cost in bytes per parameter: Markdown that is readable as text, and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "step/optimizer_costs.h"

namespace plimsoll {

std::string optimizer_costs_text(const std::vector<OptimizerCostRow>& table);
nlohmann::ordered_json optimizer_costs_json(const std::vector<OptimizerCostRow>& table);

}  // namespace plimsoll
