#include "report/optimizer_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string states_text(const OptimizerCost& c) {
  return c.managed > 0 ? fmt::format("{:.2f} + {:.2f} paged", c.states, c.managed) : fmt::format("{:.2f}", c.states);
}

void add_cells(doc::Row& row, const std::optional<OptimizerCost>& c) {
  row.cells.emplace_back(c ? states_text(*c) : "refused");
  row.cells.emplace_back(c ? fmt::format("{:.2f}", c->peak) : "");
  row.cells.emplace_back(c ? fmt::format("{:.2f}", c->after) : "");
}

Json cost_json(const std::optional<OptimizerCost>& c) {
  if (!c) return nullptr;
  return {{"states", c->states}, {"peak", c->peak}, {"after", c->after}, {"managed", c->managed}};
}

}  // namespace

doc::Document optimizer_costs_document(const std::vector<OptimizerCostRow>& table) {
  doc::Table out{{{"optimizer"}, {"arguments"}}};
  for (const char* states : {"fp32: states", "bf16: states", "bf16 + fp32 master: states"})
    for (const char* name : {states, "peak", "after"}) out.columns.push_back({name, doc::Kind::number});
  out.columns.push_back({"library"});
  for (const OptimizerCostRow& r : table) {
    doc::Row row{{r.entry->name, r.args}};
    for (const auto* cost : {&r.fp32, &r.bf16, &r.bf16_master}) add_cells(row, *cost);
    row.cells.emplace_back(r.entry->library);
    out.rows.push_back(std::move(row));
  }
  return {"", {}, {std::move(out)}};
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
