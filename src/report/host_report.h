// The host section of an estimate and the calculation for unified memory, as text for people and as JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimate/host_fit.h"
#include "estimate/rule_of_thumb.h"
#include "estimate/unified_memory.h"
#include "report/style.h"

namespace plimsoll {

std::string host_text(const HostFit& fit, const HostSettings& settings, const Style& style);
nlohmann::ordered_json host_json(const HostFit& fit);

std::string unified_text(const UnifiedEstimate& e, int64_t batch, const Style& style);
nlohmann::ordered_json unified_json(const UnifiedEstimate& e);

// Each line of the rule beside what was simulated.
std::string rule_text(const RuleOfThumb& rule, const UnifiedEstimate& e, const HostFacts& facts, const Style& style);
nlohmann::ordered_json rule_json(const RuleOfThumb& rule);

}  // namespace plimsoll
