// What an optimizer costs in bytes per parameter, found by simulating two of its steps on one large square layer and nothing else.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace plimsoll {

enum class CostPrecision : uint8_t {
  fp32,         // also autocast: its weights are fp32
  bf16,         // weights, gradients and, where the optimizer follows them, states
  bf16_master,  // bf16 weights and gradients, fp32 copies that the optimizer updates
};

// Bytes for each parameter in PyTorch's allocator.
struct OptimizerCost {
  double states = 0;   // what stays beside weights and gradients; master copies are states, too
  double peak = 0;     // weights, gradients, states and temporaries while it steps
  double after = 0;    // weights and states, once the gradients are gone
  double managed = 0;  // states in managed memory, in none of the above
};

constexpr int64_t kCostSide = 4096;  // of the layer: 16,777,216 parameters

// None when the optimizer refuses these arguments or this precision.
std::optional<OptimizerCost> optimizer_cost(const OptimizerEntry& entry, const nlohmann::json& args, CostPrecision precision);

struct OptimizerCostRow {
  const OptimizerEntry* entry;
  std::string args;                                      // "", "foreach: false", ...
  std::optional<OptimizerCost> fp32, bf16, bf16_master;  // none: refused
};

// Every optimizer of the registry in every form it has.
std::vector<OptimizerCostRow> optimizer_cost_table();

}  // namespace plimsoll
