// An Estimate as text for people and as JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimate/estimate.h"
#include "report/style.h"

namespace plimsoll {

struct TextOptions {
  int depth = 3;            // levels of the module tree
  double smallest = 0.005;  // rows below this share are summed into one
};

std::string estimate_text(const Estimate& e, const Style& style, const TextOptions& options);
nlohmann::ordered_json estimate_json(const Estimate& e);

}  // namespace plimsoll
