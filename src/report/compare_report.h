// Several jobs side by side: totals, what each is made of, and the difference from the first.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "estimate/estimate.h"
#include "estimate/fit.h"
#include "estimate/insights.h"
#include "report/document.h"

namespace plimsoll {

struct ComparedJob {
  std::string name;
  Estimate estimate;
  std::vector<Fit> fits;  // on the devices asked for, the same for all
  std::vector<Insight> insights;
};

doc::Document compare_document(const std::vector<ComparedJob>& jobs);
nlohmann::ordered_json compare_json(const std::vector<ComparedJob>& jobs);

}  // namespace plimsoll
