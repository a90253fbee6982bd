// The part of an estimate that is a compiled JAX step's own: what memory_analysis() has, what is modelled and what nvidia-smi shows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimate/xla_memory.h"
#include "report/style.h"

namespace plimsoll {

std::string xla_text(const XlaEstimate& e, const std::string& device, const JaxSettings& settings, const Style& style);
std::string xla_certainty(const Style& style);
nlohmann::ordered_json xla_json(const XlaEstimate& e);

}  // namespace plimsoll
