// The host section of an estimate and the calculation for unified memory, as text for people and as JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimate/host_fit.h"
#include "estimate/rule_of_thumb.h"
#include "estimate/unified_memory.h"
#include "report/document.h"

namespace plimsoll {

doc::Blocks host_blocks(const HostFit& fit, const HostSettings& settings);
nlohmann::ordered_json host_json(const HostFit& fit);

doc::Blocks unified_blocks(const UnifiedEstimate& e, int64_t batch);
nlohmann::ordered_json unified_json(const UnifiedEstimate& e);

// Each line of the rule beside what was simulated.
doc::Blocks rule_blocks(const RuleOfThumb& rule, const UnifiedEstimate& e, const HostFacts& facts);
nlohmann::ordered_json rule_json(const RuleOfThumb& rule);

}  // namespace plimsoll
