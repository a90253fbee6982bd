#include "report/levers_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "util/text.h"

namespace plimsoll {

namespace {

std::string row_text(const LeverEffect& e, size_t width, const WhatIf& w, const Style& style) {
  const std::string verdict = w.target.empty() ? "" : fmt::format("  {:<12}", to_string(e.verdict));
  return fmt::format("  {:<{}} {:>11} {:>8} {:>11}{}  {}\n    {}\n", e.lever.name, width, to_string(e.saving),
                     percent_of(e.saving, w.device), to_string(e.device), verdict,
                     style.dim(std::string(to_string(e.lever.kind)) + "; time: " + e.lever.cost), style.dim(e.lever.settings.flags()));
}

std::vector<std::string> names_of(const WhatIf& w, LeverOutcome outcome) {
  std::vector<std::string> out;
  for (const LeverEffect& e : w.effects)
    if (e.outcome == outcome) out.push_back(e.lever.name);
  return out;
}

}  // namespace

std::string left_out_text(const std::vector<std::string>& names) {
  return fmt::format("  Left out ({}): {}\n", kOnePool, join(names, "; "));
}

std::string what_if_text(const WhatIf& w, const Style& style) {
  size_t width = 10;
  for (const LeverEffect& e : w.effects)
    if (e.outcome == LeverOutcome::saves) width = std::max(width, e.lever.name.size());
  std::string out = style.bold("What if") +
                    style.dim(fmt::format("  each alone, simulated; device memory is {} as it is{}", to_string(w.device),
                                          w.target.empty() ? "" : ", verdicts are for " + w.target)) +
                    "\n";
  out += style.dim(fmt::format("  {:<{}} {:>11} {:>8} {:>11}{}  {}", "change", width, "saves", "", "then",
                               w.target.empty() ? "" : fmt::format("  {:<12}", "verdict"), "what it does to the run")) +
         "\n";
  for (const LeverEffect& e : w.effects)
    if (e.outcome == LeverOutcome::saves) out += row_text(e, width, w, style);
  if (const auto names = names_of(w, LeverOutcome::nothing); !names.empty())
    out += fmt::format("  Nothing here (under 0.5 %; the peak is in {}): {}\n", phase_name(w.peak_phase), join(names, "; "));
  for (const LeverEffect& e : w.effects)
    if (e.outcome == LeverOutcome::costs_memory)
      out += fmt::format("  Takes {} more: {}\n", to_string(Bytes{-e.saving.count}), e.lever.name);
  if (!w.left_out.empty()) out += left_out_text(w.left_out);
  for (const LeverEffect& e : w.effects)
    if (e.outcome == LeverOutcome::impossible) out += fmt::format("  Not possible: {} ({})\n", e.lever.name, e.note);
  return out;
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
    nlohmann::ordered_json row{{"name", e.lever.name},       {"outcome", to_string(e.outcome)}, {"settings", settings},
                               {"flags", e.lever.settings.flags()}, {"kind", to_string(e.lever.kind)}, {"cost", e.lever.cost}};
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
