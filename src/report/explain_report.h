// What a job will really do: every value with the place it comes from, and where what is declared is not what happens.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "estimate/estimate.h"
#include "estimate/fit.h"
#include "job/config_log.h"
#include "report/document.h"

namespace plimsoll {

struct ExplainedValue {
  std::string name, value;
  std::string origin;  // "config.json: vram.batch_size", "default of LlamaConfig"
};

struct Explanation {
  Estimate estimate;
  std::vector<Fit> fits;
  std::vector<ExplainedValue> settings, config;  // of the run; of the model
};

// `lookups`: what the model asked its configuration for; `defaults`: whose defaults they are.
Explanation explain_job(const Estimate& e, const std::vector<ConfigLookup>& lookups, const std::string& defaults);
doc::Document explain_document(const Explanation& x);
nlohmann::ordered_json explain_json(const Explanation& x);

}  // namespace plimsoll
