#include "report/explain_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "report/captured_report.h"
#include "report/estimate_report.h"
#include "report/fit_report.h"
#include "report/job_report.h"
#include "report/schema_versions.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string value_text(const Json& v) { return printable(v.is_string() ? v.get<std::string>() : dump(v), 60); }

// Settings that say something: given by somebody, or not the usual "off".
bool worth_showing(const std::string& key, const Json& value, const Job& job) {
  static const std::set<std::string> kAlways{"model",     "batch",        "seq",           "precision",
                                             "optimizer", "accumulation", "checkpointing", "attention"};
  return (kAlways.contains(key) && !job.captured) || job.origin.contains(key);
}

std::vector<ExplainedValue> settings_of(const Job& job) {
  std::vector<ExplainedValue> out;
  const Json values = job_json(job);
  for (const auto& [key, value] : values.items()) {
    if (key == "origin" || key == "config" || key == "family" || !worth_showing(key, value, job)) continue;
    const auto it = job.origin.find(key);
    out.push_back({key, value_text(value), it == job.origin.end() ? "default" : it->second});
  }
  return out;
}

doc::Facts values(const std::vector<ExplainedValue>& rows) {
  doc::Facts out;
  for (const ExplainedValue& r : rows) out.facts.push_back({r.name, r.value, doc::dim("← " + r.origin)});
  return out;
}

doc::Block findings(const Job& job) {
  if (job.findings.empty()) return doc::Paragraph{"Every setting does what it says."};
  doc::Table table{{{"effect"}, {"setting"}, {"comes from"}}};
  for (const Finding& f : job.findings) {
    doc::Row row{{to_string(f.effect), doc::bold(f.setting), doc::dim(f.source)}, {f.what}};
    if (!f.why.empty()) row.details.push_back(doc::dim(f.why));
    table.rows.push_back(std::move(row));
  }
  return table;
}

doc::Facts needs(const Estimate& e) {
  doc::Facts out{
      {{"tensors", e.peak, fmt::format("peak in {}{}", phase_name(e.peak_phase), e.peak_module.empty() ? "" : ", " + e.peak_module)}}};
  if (e.memory) out.facts.push_back({"device", e.memory->device.bytes, doc::interval(e.memory->device.low, e.memory->device.high)});
  return out;
}

}  // namespace

Explanation explain_job(const Estimate& e, const std::vector<ConfigLookup>& lookups, const std::string& defaults) {
  Explanation x;
  x.estimate = e;
  x.settings = settings_of(e.job);
  std::set<std::string> seen;
  for (const ConfigLookup& l : lookups) {
    if (!seen.insert(l.key).second || (!l.given && l.value == "null")) continue;
    const auto it = e.job.origin.find("config." + l.key);
    x.config.push_back({l.key, printable(l.value, 60),
                        !l.given                   ? "default of " + defaults
                        : it != e.job.origin.end() ? it->second
                                                   : e.job.config.source()});
  }
  std::stable_sort(x.config.begin(), x.config.end(), [&](const ExplainedValue& a, const ExplainedValue& b) {
    const auto is_default = [](const ExplainedValue& v) { return v.origin.starts_with("default of "); };
    return is_default(a) < is_default(b);
  });
  return x;
}

doc::Document explain_document(const Explanation& x) {
  const Job& job = x.estimate.job;
  doc::Document out{job.model, fmt::format("{}{}", recipe_text(job, x.estimate.sample, with_commas(x.estimate.parameters)),
                                           job.trainer.empty() ? "" : ", as " + job.trainer + " would run it")};
  doc::append(out.blocks, {doc::Heading{"Effective settings"}, values(x.settings)});
  if (job.captured) doc::append(out.blocks, captured_blocks(job));
  if (!x.config.empty()) doc::append(out.blocks, {doc::Heading{"The model"}, values(x.config)});
  doc::append(out.blocks, {doc::Heading{"Declared and effective"}, findings(job), doc::Heading{"Memory"}, needs(x.estimate)});
  doc::append(out.blocks, fits_blocks(x.fits));
  return out;
}

Json explain_json(const Explanation& x) {
  const auto rows = [](const std::vector<ExplainedValue>& values) {
    Json out = Json::array();
    for (const ExplainedValue& v : values) out.push_back({{"name", v.name}, {"value", v.value}, {"origin", v.origin}});
    return out;
  };
  Json j{{"schema", kExplainSchema},
         {"command", "explain"},
         {"kind", "job"},
         {"job", job_json(x.estimate.job)},
         {"trainer", x.estimate.job.trainer},
         {"settings", rows(x.settings)},
         {"config", rows(x.config)},
         {"findings", findings_json(x.estimate.job)},
         {"parameters", x.estimate.parameters},
         {"peak_bytes", x.estimate.peak.count},
         {"memory", nullptr},
         {"fits", fits_json(x.fits)}};
  if (x.estimate.job.captured) j["captured"] = captured_json(x.estimate.job);
  if (x.estimate.memory) j["memory"] = {{"device", range_json(x.estimate.memory->device)}};
  return j;
}

}  // namespace plimsoll
