// Plimsoll's own job file: a mapping whose keys are settings, or the `job` of an answer in JSON.
#include "formats/format.h"
#include "job/settings.h"

namespace plimsoll {

namespace {

Evidence evidence_of_job(const Document& d) {
  const bool own = d.value.is_object() && d.value.contains("model") && d.value["model"].is_string() && is_job_json(d.value);
  return own ? Evidence{"model"} : Evidence{};
}

void read_job(Reader& r) { apply_settings(r.job, r.document.value, r.document.name); }

// `optimizer: {name: AdamW, args: {fused: true}}` holds both.
Encoded encode_optimizer(const EncodeRequest& w) {
  const nlohmann::json* old = w.find("optimizer");
  const nlohmann::json& args = w.job.optimizer.args.values();
  if (old && old->is_object()) return {{{"optimizer.name", w.job.optimizer.name}, {"optimizer.args", args}}, ""};
  Encoded encoded;
  if (old || w.job.optimizer.name != w.before.optimizer.name) encoded.keys.push_back({"optimizer", w.job.optimizer.name});
  if (!args.empty() || w.find("optimizer_args")) encoded.keys.push_back({"optimizer_args", args});
  return encoded;
}

const SettingsEncoder& writes_job() {
  static const SettingsEncoder kWrites = [] {
    SettingsEncoder w;
    for (const Setting& s : job_settings())
      w.keys.push_back(
          {s.key, s.key,
           std::string(s.key).starts_with("optimizer") && std::string(s.key) != "optimizer_in_backward" ? encode_optimizer : nullptr});
    return w;
  }();
  return kWrites;
}

}  // namespace

const Format& job_format() {
  static const Format kFormat{"job", "Plimsoll's own job file, YAML or JSON", Rank::job, evidence_of_job, read_job, nullptr, writes_job};
  return kFormat;
}

}  // namespace plimsoll
