// The rule of thumb for unified memory beside the simulation.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/host_report.h"

namespace plimsoll {

namespace {

std::string gib(double n) { return fmt::format("{:.2f} GiB", n); }
std::string gib(Bytes b) { return gib(static_cast<double>(b.count) / (1 << 30)); }

std::string step_of(const UnifiedEstimate& e, const char* name) {
  for (const UnifiedStep& s : e.steps)
    if (s.name == name) return s.bytes ? gib(*s.bytes) : with_commas(*s.samples);
  return "-";
}

}  // namespace

doc::Blocks rule_blocks(const RuleOfThumb& r, const UnifiedEstimate& e, const HostFacts& facts) {
  using doc::Kind;
  const RuleAnswer a = rule_of_thumb(r);
  doc::Table table{{{""}, {"rule", Kind::number}, {"simulated", Kind::number}, {"the rule's formula"}}};
  const auto line = [&](const char* name, const std::string& rule, const std::string& simulated, const std::string& formula) {
    table.rows.push_back({{name, rule, simulated, formula}});
  };
  line("weights", gib(r.weights), gib(facts.parameters), "taken from the simulation");
  line("optimizer states", gib(r.optimizer), gib(facts.optimizer_states), "2 x weights");
  line("EMA", gib(r.ema), gib(facts.ema), "weights again");
  line("workers and process", gib(a.workers), step_of(e, "host, fixed"), fmt::format("{} workers x {:g} GiB", r.workers, r.per_worker));
  line("system", gib(r.system), step_of(e, "reserved for the system"), "a constant");
  line("reserved", gib(a.reserved), "", "the sum; no gradients, no temporaries");
  line("available", gib(a.available), step_of(e, "left for samples"), fmt::format("({:g} - reserved) x {:g}", r.total, r.safety));
  if (!a.per_sample) {
    line("per sample", "-", step_of(e, "per sample"), "it has no rule for tokens");
  } else {
    line("per sample", gib(*a.per_sample), step_of(e, "per sample"),
         fmt::format("{:g} GiB per megapixel, whatever the model", r.per_megapixel));
    line("divided", with_commas(*a.divided), step_of(e, "maximum batch, divided"), "floor(available / per sample)");
    line("batch", with_commas(*a.batch), with_commas(e.max_batch), fmt::format("at least 1, at most {} at this resolution", *a.cap));
  }
  return {doc::Heading{"The rule of thumb", "from AI Toolkit's memory-estimation.md, beside the simulation"}, std::move(table)};
}

nlohmann::ordered_json rule_json(const RuleOfThumb& r) {
  const RuleAnswer a = rule_of_thumb(r);
  nlohmann::ordered_json j{{"weights_gib", r.weights},
                           {"optimizer_gib", r.optimizer},
                           {"ema_gib", r.ema},
                           {"workers_gib", a.workers},
                           {"system_gib", r.system},
                           {"reserved_gib", a.reserved},
                           {"available_gib", a.available},
                           {"per_sample_gib", nullptr},
                           {"divided", nullptr},
                           {"batch", nullptr}};
  if (!a.per_sample) return j;
  j["per_sample_gib"] = *a.per_sample;
  j["divided"] = *a.divided;
  j["batch"] = *a.batch;
  return j;
}

}  // namespace plimsoll
