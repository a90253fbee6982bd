#include "report/explain_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

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
  return kAlways.contains(key) || job.origin.contains(key);
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

std::string heading(const Explanation& x, const Style& style) {
  const Job& job = x.estimate.job;
  return style.bold(job.model) +
         fmt::format("  {} parameters, {}", with_commas(x.estimate.parameters), recipe_text(job, x.estimate.sample)) +
         (job.trainer.empty() ? "" : ", as " + job.trainer + " would run it");
}

std::string table(const std::vector<ExplainedValue>& rows, const Style& style) {
  size_t name = 8, value = 4;
  for (const ExplainedValue& r : rows) {
    name = std::max(name, r.name.size());
    value = std::max(value, std::min<size_t>(r.value.size(), 40));
  }
  std::string out;
  for (const ExplainedValue& r : rows)
    out += fmt::format("  {:<{}}  {:<{}}  {}\n", r.name, name, r.value, value, style.dim((style.unicode ? "← " : "<- ") + r.origin));
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

std::string explain_text(const Explanation& x, const Style& style) {
  const Job& job = x.estimate.job;
  std::string out = heading(x, style) + "\n\n";
  out += style.bold("What will happen") + "\n" + table(x.settings, style);
  if (!x.config.empty()) out += "\n" + style.bold("The model") + "\n" + table(x.config, style);
  out += "\n" + style.bold("Declared and effective") + "\n";
  if (job.findings.empty()) out += "  nothing was found that does not do what it says\n";
  for (const Finding& f : job.findings) {
    out += fmt::format("  {:<10} {}{}\n", to_string(f.effect), f.setting.empty() ? f.source : style.bold(f.setting),
                       f.setting.empty() ? "" : style.dim("  " + f.source));
    out += fmt::format("             {}\n", f.what);
    if (!f.why.empty()) out += fmt::format("             {}\n", style.dim(f.why));
  }
  out += "\n" + style.bold("So it needs") + "\n";
  out += fmt::format("  tensors {}  (peak in {}{})\n", to_string(x.estimate.peak), phase_name(x.estimate.peak_phase),
                     x.estimate.peak_module.empty() ? "" : ", " + x.estimate.peak_module);
  if (x.estimate.memory)
    out += fmt::format("  device  {}  ({} to {})\n", to_string(x.estimate.memory->device.bytes), to_string(x.estimate.memory->device.low),
                       to_string(x.estimate.memory->device.high));
  if (!x.fits.empty()) out += "\n" + fits_text(x.fits, style);
  return out;
}

Json explain_json(const Explanation& x) {
  const auto rows = [](const std::vector<ExplainedValue>& values) {
    Json out = Json::array();
    for (const ExplainedValue& v : values) out.push_back({{"name", v.name}, {"value", v.value}, {"origin", v.origin}});
    return out;
  };
  Json findings = Json::array();
  for (const Finding& f : x.estimate.job.findings)
    findings.push_back({{"effect", to_string(f.effect)}, {"setting", f.setting}, {"source", f.source}, {"what", f.what}, {"why", f.why}});
  Json j{{"schema", kExplainSchema},
         {"command", "explain"},
         {"kind", "job"},
         {"job", job_json(x.estimate.job)},
         {"trainer", x.estimate.job.trainer},
         {"settings", rows(x.settings)},
         {"config", rows(x.config)},
         {"findings", findings},
         {"parameters", x.estimate.parameters},
         {"peak_bytes", x.estimate.peak.count},
         {"memory", nullptr},
         {"fits", fits_json(x.fits)}};
  if (x.estimate.memory) j["memory"] = {{"device", range_json(x.estimate.memory->device)}};
  return j;
}

}  // namespace plimsoll
