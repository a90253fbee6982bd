// An Estimate as text for people and as JSON for programs.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimate/estimate.h"
#include "report/style.h"

namespace plimsoll {

struct TextOptions {
  int depth = 3;            // levels of the module tree
  double smallest = 0.005;  // rows below this share are summed into one
};

// Parameters of each part of the model, the first `depth` names of its path. Only of an estimate with tensors.
std::map<std::string, int64_t> parameters_by_part(const Estimate& e, size_t depth);

std::string estimate_text(const Estimate& e, const Style& style, const TextOptions& options);
nlohmann::ordered_json estimate_json(const Estimate& e);

}  // namespace plimsoll
