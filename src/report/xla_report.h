// The part of an estimate that is a compiled JAX step's own: what memory_analysis() has, what is modelled and what nvidia-smi shows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimate/xla_memory.h"
#include "report/document.h"

namespace plimsoll {

// `device`: whose overheads they are, of `vendor`; empty: some NVIDIA card.
void add_program(doc::Facts& facts, const XlaEstimate& e, const std::string& device, const std::string& vendor,
                 const JaxSettings& settings);
std::string xla_certainty();
nlohmann::ordered_json xla_json(const XlaEstimate& e);

}  // namespace plimsoll
