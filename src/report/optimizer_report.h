// The table of what optimizers cost in bytes per parameter, as a document and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "report/document.h"
#include "step/optimizer_costs.h"

namespace plimsoll {

doc::Document optimizer_costs_document(const std::vector<OptimizerCostRow>& table);
nlohmann::ordered_json optimizer_costs_json(const std::vector<OptimizerCostRow>& table);

}  // namespace plimsoll
