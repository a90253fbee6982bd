#include "report/optimizer_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string states_text(const OptimizerCost& c) {
  return c.managed > 0 ? fmt::format("{:.2f} + {:.2f} paged", c.states, c.managed) : fmt::format("{:.2f}", c.states);
}

std::string cells(const std::optional<OptimizerCost>& c) {
  return c ? fmt::format(" {} | {:.2f} | {:.2f} |", states_text(*c), c->peak, c->after) : " refused | | |";
}

Json cost_json(const std::optional<OptimizerCost>& c) {
  if (!c) return nullptr;
  return {{"states", c->states}, {"peak", c->peak}, {"after", c->after}, {"managed", c->managed}};
}

}  // namespace

std::string optimizer_costs_text(const std::vector<OptimizerCostRow>& table) {
  std::string out =
      "| optimizer | arguments | fp32: states | peak | after | bf16: states | peak | after | bf16 + fp32 master: states | peak | after | "
      "library |\n"
      "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n";
  for (const OptimizerCostRow& r : table)
    out += fmt::format("| {} | {} |{}{}{} {} |\n", r.entry->name, r.args, cells(r.fp32), cells(r.bf16), cells(r.bf16_master),
                       r.entry->library);
  return out;
}

Json optimizer_costs_json(const std::vector<OptimizerCostRow>& table) {
  Json out = Json::array();
  for (const OptimizerCostRow& r : table)
    out.push_back({{"name", r.entry->name},
                   {"arguments", r.args},
                   {"library", r.entry->library},
                   {"fp32", cost_json(r.fp32)},
                   {"bf16", cost_json(r.bf16)},
                   {"bf16_master", cost_json(r.bf16_master)}});
  return out;
}

}  // namespace plimsoll
