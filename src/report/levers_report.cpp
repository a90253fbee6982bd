#include "report/levers_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/fit_report.h"
#include "util/text.h"

namespace plimsoll {

namespace {

std::vector<std::string> names_of(const WhatIf& w, LeverOutcome outcome) {
  std::vector<std::string> out;
  for (const LeverEffect& e : w.effects)
    if (e.outcome == outcome) out.push_back(e.lever.name);
  return out;
}

}  // namespace

doc::Text left_out_text(const std::vector<std::string>& names) { return fmt::format("Left out ({}): {}", kOnePool, join(names, "; ")); }

doc::Blocks what_if_blocks(const WhatIf& w) {
  using doc::Kind;
  doc::Text note = doc::Text("each change alone, simulated; device memory is ") + w.device + " as it is";
  if (!w.target.empty()) note += ", verdicts are for " + w.target;
  doc::Table table{{{"change"}, {"saves", Kind::size}, {"", Kind::percent}, {"then", Kind::size}}};
  if (!w.target.empty()) table.columns.push_back({"verdict"});
  doc::List rest;
  if (const auto names = names_of(w, LeverOutcome::nothing); !names.empty())
    rest.items.emplace_back(
        fmt::format("Saves nothing here (under 0.5 %; the peak is in {}): {}", phase_name(w.peak_phase), join(names, "; ")));
  for (const LeverEffect& e : w.effects) {
    if (e.outcome == LeverOutcome::saves) {
      doc::Row row{{e.lever.name, e.saving, doc::Share{e.saving, w.device}, e.device}, {}};
      if (!w.target.empty()) row.cells.push_back(verdict_text(e.verdict));
      row.details.push_back(doc::code(e.lever.settings.flags()) +
                            doc::dim(fmt::format("  {}; time: {}", to_string(e.lever.kind), e.lever.cost)));
      table.rows.push_back(std::move(row));
    }
    if (e.outcome == LeverOutcome::costs_memory)
      rest.items.push_back(doc::Text("Takes ") + Bytes{-e.saving.count} + " more: " + e.lever.name);
  }
  if (!w.left_out.empty()) rest.items.push_back(left_out_text(w.left_out));
  for (const LeverEffect& e : w.effects)
    if (e.outcome == LeverOutcome::impossible) rest.items.emplace_back(fmt::format("Not possible: {} ({})", e.lever.name, e.note));
  return {doc::Heading{"What if", note}, std::move(table), std::move(rest)};
}

nlohmann::ordered_json left_out_json(const std::vector<std::string>& levers) {
  if (levers.empty()) return nullptr;
  return {{"why", kOnePool}, {"levers", levers}};
}

nlohmann::ordered_json what_if_json(const WhatIf& w) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const LeverEffect& e : w.effects) {
    nlohmann::ordered_json settings = nlohmann::ordered_json::object();
    for (const auto& [key, value] : e.lever.settings.in_order()) settings[key] = value;
    nlohmann::ordered_json row{{"name", e.lever.name},
                               {"outcome", to_string(e.outcome)},
                               {"settings", settings},
                               {"flags", e.lever.settings.flags()},
                               {"kind", to_string(e.lever.kind)},
                               {"cost", e.lever.cost}};
    if (e.outcome == LeverOutcome::impossible) {
      row["reason"] = e.note;
    } else {
      row["saving_bytes"] = e.saving.count;
      row["device_bytes"] = e.device.count;
      row["allocated_bytes"] = e.allocated.count;
      if (!w.target.empty()) row["verdict"] = to_string(e.verdict);
    }
    rows.push_back(std::move(row));
  }
  return {{"device_bytes", w.device.count},
          {"allocated_bytes", w.allocated.count},
          {"peak_phase", phase_name(w.peak_phase)},
          {"target", w.target},
          {"levers", rows},
          {"left_out", left_out_json(w.left_out)}};
}

}  // namespace plimsoll
