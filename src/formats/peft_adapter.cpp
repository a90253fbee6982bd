// adapter_config.json of PEFT, and the adapters' weights beside it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "formats/format.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// Keys of LoraConfig, LoKrConfig, IA3Config and LNTuningConfig that our settings have by the same name.
constexpr std::array kShared{"target_modules", "exclude_modules", "modules_to_save", "task_type"};
constexpr std::array kLora{"r",
                           "lora_alpha",
                           "lora_dropout",
                           "use_dora",
                           "use_rslora",
                           "bias",
                           "rank_pattern",
                           "alpha_pattern",
                           "layers_to_transform",
                           "layers_pattern"};
constexpr std::array kLokr{"r",
                           "alpha",
                           "rank_dropout",
                           "rank_pattern",
                           "alpha_pattern",
                           "layers_to_transform",
                           "layers_pattern",
                           "decompose_both",
                           "decompose_factor"};
constexpr std::array kIa3{"feedforward_modules"};

template <size_t N>
void copy(Reader& r, Json& out, const std::array<const char*, N>& keys) {
  for (const char* key : keys)
    if (const Json* value = r.find(key)) out[key] = *value;
}

// What PEFT can do and the simulated adapters cannot, when it is switched on: it changes the model itself.
void refuse_others(Reader& r) {
  for (const char* key : {"layer_replication", "target_parameters", "use_qalora", "arrow_config", "alora_invocation_tokens",
                          "use_effective_conv2d", "lora_bias", "trainable_token_indices"}) {
    const Json* value = r.find(key);
    if (value && *value != false && !value->empty())
      throw Error(fmt::format("[{}] {} is not simulated", r.document.name, key),
                  "leave it out to see the rest: give the settings with --lora");
  }
}

Evidence evidence_of_peft_adapter(const Document& d) { return d.kind == Document::Kind::json ? keys_there(d, {"peft_type"}) : Evidence{}; }

void read_peft_adapter(Reader& r) {
  const std::string type = lower(r.text("peft_type"));
  Json settings = Json::object();
  copy(r, settings, kShared);
  if (type == "lora") {
    copy(r, settings, kLora);
  } else if (type == "lokr") {
    copy(r, settings, kLokr);
  } else if (type == "ia3") {
    copy(r, settings, kIa3);
  } else if (type != "ln_tuning") {
    throw Error(fmt::format("[peft] {}: peft_type '{}' is not simulated", r.document.name, printable(r.text("peft_type"), 40)),
                "known: LORA, LOKR, IA3, LN_TUNING");
  }
  refuse_others(r);
  // One that is there already came from a file of less weight.
  for (const char* kind : {"lora", "lokr", "ia3", "ln_tuning"})
    if (type != kind && r.job.origin.contains(kind)) r.set(kind, false, "peft_type");
  r.set(type.c_str(), settings, "peft_type");
  if (!r.job.origin.contains("model") && r.has("base_model_name_or_path")) r.set("model", "base_model_name_or_path");
}

Evidence evidence_of_peft_weights(const Document& d) {
  if (d.kind != Document::Kind::safetensors) return {};
  const auto is_adapter = [](const WeightTensor& t) {
    for (const char* part : {"lora_A", "lora_B", "lora_up", "lora_down", "lokr_", "hada_", "ia3_l", "lora_embedding_",
                             "lora_magnitude_vector", ".alpha", "modules_to_save"})
      if (t.name.find(part) != std::string::npos) return true;
    return false;
  };
  if (d.tensors.empty() || !std::all_of(d.tensors.begin(), d.tensors.end(), is_adapter)) return {};
  return {d.tensors.front().name};
}

void read_peft_weights(Reader& r) {
  std::set<int64_t> ranks;
  for (const WeightTensor& t : r.document.tensors)
    if (t.shape.size() >= 2 && (t.name.find("lora_A") != std::string::npos || t.name.find("lora_down") != std::string::npos))
      ranks.insert(t.shape[0]);
  std::vector<std::string> shown;
  for (const int64_t rank : ranks) shown.push_back(std::to_string(rank));
  r.note(Effect::note,
         fmt::format("weights of an adapter: {}{}{}", summary(r.document.tensors), ranks.empty() ? "" : ", of rank ", join(shown, ", ")));
}

Encoded encode_adapter(const EncodeRequest& w) {
  const std::optional<AdapterSettings>& a = w.job.tuning.adapter;
  if (!a || !w.before.tuning.adapter || a->kind != w.before.tuning.adapter->kind) return {};
  Encoded encoded{{{"r", a->r}}, ""};
  if (a->kind == AdapterKind::lora) encoded.keys.push_back({"lora_alpha", plain_number(a->alpha)});
  if (a->kind == AdapterKind::lora && (a->dropout > 0 || w.has("lora_dropout")))
    encoded.keys.push_back({"lora_dropout", plain_number(a->dropout)});
  if (!a->target_modules.empty()) encoded.keys.push_back({"target_modules", targets_of(*a)});
  return encoded;
}

const SettingsEncoder& writes_peft_adapter() {
  static const SettingsEncoder kWrites{{{"lora", "r", encode_adapter}, {"lokr", "r", encode_adapter}}};
  return kWrites;
}

}  // namespace

const Format& peft_weights_format() {
  static const Format kFormat{"peft_weights", "adapter_model.safetensors of PEFT and other adapters", Rank::adapter,
                              evidence_of_peft_weights, read_peft_weights};
  return kFormat;
}

const Format& peft_adapter_format() {
  static const Format kFormat{
      "peft_adapter",     "adapter_config.json of PEFT", Rank::adapter, evidence_of_peft_adapter, read_peft_adapter, nullptr,
      writes_peft_adapter};
  return kFormat;
}

}  // namespace plimsoll
