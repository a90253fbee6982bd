// The AI Toolkit's rules for one question: its code's answer, its document's, where they part, and the executed answer beside them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "estimate/estimate.h"
#include "report/document.h"
#include "systems/ai_toolkit/document.h"

namespace plimsoll {

// The run that the rules' answer describes, simulated; or why it was not.
struct ExecutedRun {
  std::string model;  // a preset
  std::optional<Estimate> estimate;
  std::string why_not, hint;
};

doc::Document ai_toolkit_document(const ai_toolkit::Question& q, const ExecutedRun& run);
nlohmann::ordered_json ai_toolkit_json(const ai_toolkit::Question& q, const ExecutedRun& run);

}  // namespace plimsoll
