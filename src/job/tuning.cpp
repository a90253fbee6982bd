#include "job/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "job/fields.h"
#include "job/packed_storage.h"
#include "job/quantization_kind.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr std::array kKinds{"lora", "lokr", "ia3", "ln_tuning"};
constexpr std::array kTitles{"LoRA", "LoKr", "IA3", "LN tuning"};

// Keys that cost no memory (how adapters are initialised, scaled and stored) are known and change nothing.
std::vector<std::string> known_keys(AdapterKind kind) {
  std::vector<std::string> keys{"target_modules", "exclude_modules", "modules_to_save", "dtype", "autocast_adapter_dtype", "task_type"};
  auto add = [&](std::initializer_list<const char*> more) { keys.insert(keys.end(), more.begin(), more.end()); };
  if (kind == AdapterKind::lora)
    add({"lora_alpha", "dropout", "lora_dropout", "use_dora", "use_rslora", "bias", "init_lora_weights", "fan_in_fan_out",
         "implementation"});
  if (kind == AdapterKind::lokr) add({"decompose_both", "decompose_factor", "rank_dropout", "init_weights"});
  if (kind == AdapterKind::lora || kind == AdapterKind::lokr)
    add({"r", "alpha", "rank_pattern", "alpha_pattern", "layers_to_transform", "layers_pattern"});
  if (kind == AdapterKind::ia3) add({"feedforward_modules", "init_ia3_weights", "fan_in_fan_out"});
  return keys;
}

std::string choice(const Config& c, const char* key, const std::string& fallback, const std::vector<std::string>& known) {
  const std::string text = c.text({key}, fallback);
  if (std::find(known.begin(), known.end(), text) == known.end())
    throw Error(fmt::format("[{}] {} '{}' is not known", c.source(), key, text), did_you_mean(text, known));
  return text;
}

double probability(const Config& c, std::initializer_list<const char*> keys) {
  const double p = c.number(keys, 0.0);
  if (!(p >= 0 && p <= 1)) throw Error(fmt::format("[{}] {} {} is not between 0 and 1", c.source(), *keys.begin(), p), "e.g. 0.05");
  return p;
}

// One value is a list of one.
Json list_of(const Config& c, const char* key) {
  const Json* value = c.find({key});
  if (!value) return Json::array();
  return value->is_array() ? *value : Json::array({*value});
}

// PEFT 0.20, tuners/lora/config.py, __post_init__: numbers choose among listed targets only.
void read_layers(const Config& c, AdapterSettings& a) {
  const std::string source = c.source();
  for (const Json& number : list_of(c, "layers_to_transform")) {
    if (!number.is_number_integer() || number.get<int64_t>() < 0)
      throw Error(fmt::format("[{}] layers_to_transform {} is not the number of a layer", source, dump(number).substr(0, 80)),
                  "layers count from 0, e.g. [0, 1, 2]");
    a.layers_to_transform.push_back(number.get<int64_t>());
  }
  if (c.find({"layers_pattern"})) a.layers_pattern = parse_name_list(list_of(c, "layers_pattern"), source + " layers_pattern");
  if (!a.layers_pattern.empty() && a.layers_to_transform.empty())
    throw Error(fmt::format("[{}] layers_pattern '{}' without layers_to_transform", source, join(a.layers_pattern, ", ")),
                "give the numbers of the layers too, or leave it out");
  const ModuleNames& targets = a.target_modules;
  if (!a.layers_to_transform.empty() && (targets.all_linear || !targets.pattern.empty()))
    throw Error(fmt::format("[{}] layers_to_transform beside target_modules '{}', which PEFT refuses", source, to_string(targets)),
                "list the targets, e.g. [q_proj, v_proj]");
}

void read_ranks(const Config& c, AdapterSettings& a) {
  a.r = c.size({"r"}, 8);
  const Json* pattern = c.find({"rank_pattern"});
  if (!pattern) return;
  if (!pattern->is_object())
    throw Error(fmt::format("[{}] rank_pattern {} is not a mapping", c.source(), dump(*pattern).substr(0, 80)), "e.g. {v_proj: 16}");
  const Config ranks(c.source() + " rank_pattern", *pattern);
  for (const auto& item : pattern->items()) a.rank_pattern[item.key()] = ranks.size({item.key().c_str()}, 0);
}

void read_lora(const Config& c, AdapterSettings& a) {
  a.dropout = probability(c, {"dropout", "lora_dropout"});
  a.use_dora = c.flag({"use_dora"}, false);
  a.ai_toolkit = choice(c, "implementation", "peft", {"peft", "ai-toolkit"}) == "ai-toolkit";
  if (a.ai_toolkit && a.use_dora) throw Error("[lora] implementation ai-toolkit: DoRA is not simulated", "leave use_dora out");
  const std::string bias = choice(c, "bias", "none", {"none", "all", "lora_only"});
  a.bias = bias == "all" ? BiasTraining::all : bias == "none" ? BiasTraining::none : BiasTraining::adapted;
}

void read_lokr(const Config& c, AdapterSettings& a) {
  if (const double p = probability(c, {"rank_dropout"}); p > 0)
    throw Error(fmt::format("[lokr] rank_dropout {} is not simulated", p), "leave it out: nothing is dropped by default");
  a.decompose_both = c.flag({"decompose_both"}, false);
  a.decompose_factor = c.integer({"decompose_factor"}, -1);
  if (a.decompose_factor == 0 || a.decompose_factor < -1)
    throw Error(fmt::format("[lokr] decompose_factor {} is neither -1 nor above 0", a.decompose_factor), "-1 lets PEFT choose");
}

}  // namespace

const char* to_string(AdapterKind k) { return kKinds[static_cast<size_t>(k)]; }

AdapterKind parse_adapter_kind(const std::string& text) {
  for (size_t i = 0; i < kKinds.size(); ++i)
    if (text == kKinds[i]) return static_cast<AdapterKind>(i);
  throw Error("[adapter] '" + text + "' is not known", did_you_mean(text, {kKinds.begin(), kKinds.end()}));
}

std::vector<std::string> parse_name_list(const Json& value, const std::string& source) {
  const ModuleNames names = parse_module_names(value.is_string() ? parse_flag_value(value.get<std::string>()) : value, source);
  if (names.all_linear || !names.pattern.empty())
    throw Error(fmt::format("[{}] {} is not a list of module names", source, dump(value).substr(0, 80)), "e.g. [lm_head, embed_tokens]");
  return names.names;
}

AdapterSettings parse_adapter(AdapterKind kind, const Json& value) {
  const Config c =
      fields_of(value, to_string(kind), known_keys(kind), fmt::format("e.g. --{} target_modules=q_proj+v_proj", to_string(kind)));
  AdapterSettings a;
  a.kind = kind;
  const std::string source = c.source();
  if (const Json* v = c.find({"target_modules"})) a.target_modules = parse_module_names(*v, source + " target_modules");
  if (const Json* v = c.find({"exclude_modules"})) a.exclude_modules = parse_module_names(*v, source + " exclude_modules");
  if (const Json* v = c.find({"modules_to_save"})) a.modules_to_save = parse_name_list(*v, source + " modules_to_save");
  if (const Json* v = c.find({"feedforward_modules"})) a.feedforward_modules = parse_module_names(*v, source + " feedforward_modules");
  a.classifier_is_saved = c.text({"task_type"}, "") == "SEQ_CLS";
  a.fp32 = choice(c, "dtype", "fp32", {"fp32", "base"}) == "fp32" && c.flag({"autocast_adapter_dtype"}, true);
  read_ranks(c, a);
  read_layers(c, a);
  a.alpha = c.number({"alpha", "lora_alpha"}, 8);
  if (kind == AdapterKind::lora) read_lora(c, a);
  if (kind == AdapterKind::lokr) read_lokr(c, a);
  return a;
}

bool is_bitsandbytes(const QuantizationSettings& q) { return q.type == "nf4" || q.type == "fp4" || q.type == "int8" || packed_storage(q); }

QuantizationSettings parse_quantization(const Json& value) {
  Json given = value;
  if (value.is_string() && value.get<std::string>().find('=') == std::string::npos) given = {{"type", value}};
  const Config c = fields_of(given, "quantization",
                             {"type", "storage", "double_quant", "compute_dtype", "threshold", "outliers", "skip_modules", "prepare"},
                             "e.g. --quantization nf4, or type=nf4,double_quant=true");
  QuantizationSettings q;
  std::vector<std::string> types{"nf4",   "fp4",   "int8",  "qfloat8", "uint2", "uint3",
                                 "uint4", "uint5", "uint6", "uint7",   "gptq",  "gptq-torch"};
  for (const std::string& type : stored_types()) types.push_back(type);
  q.type = choice(c, "type", "nf4", types);
  q.type = with_storage(q.type, c.text({"storage"}, "uint8"));
  q.double_quant = c.flag({"double_quant"}, false);
  q.compute_dtype = choice(c, "compute_dtype", "bf16", {"bf16", "fp16", "fp32"});
  q.threshold = c.number({"threshold"}, 6.0);
  if (!(q.threshold >= 0)) throw Error(fmt::format("[quantization] threshold {} is below 0", q.threshold), "0 looks for no outliers");
  q.outliers = c.integer({"outliers"}, 0);
  if (q.outliers < 0) throw Error(fmt::format("[quantization] outliers {} is below 0", q.outliers), "a number of columns, e.g. 6");
  if (const Json* v = c.find({"skip_modules"})) q.skip_modules = parse_name_list(*v, "quantization skip_modules");
  q.prepare = c.flag({"prepare"}, is_bitsandbytes(q) && !packed_storage(q));  // one type for all is what such a storage is for
  if (q.prepare && !is_bitsandbytes(q) && q.type.rfind("gptq", 0) != 0)       // of GPTQ's models PEFT casts nothing, loops of one's own may
    throw Error("[quantization] prepare: prepare_model_for_kbit_training is about bitsandbytes, not " + q.type, "leave prepare out");
  return q;
}

void check(const TuningSettings& t) {
  if (t.adapter && !t.trainable.empty())
    throw Error(fmt::format("[trainable] '{}' beside {}: PEFT freezes the model and trains the adapters alone", t.trainable.front(),
                            to_string(t.adapter->kind)),
                fmt::format("name it in {}'s modules_to_save, or leave the adapter out", to_string(t.adapter->kind)));
  if (t.adapter)
    for (const std::string& name : t.adapter->modules_to_save)
      if (std::find(t.frozen.begin(), t.frozen.end(), name) != t.frozen.end())
        throw Error(fmt::format("[modules_to_save] '{}' is frozen too", name),
                    "modules_to_save are trained in full: name it in one of them");
  if (t.quantization && !t.adapter && t.trainable.empty())
    throw Error(fmt::format("[quantization] {} without an adapter: quantised weights have no gradient, and transformers' Trainer refuses "
                            "to train a purely quantised model",
                            t.quantization->type),
                "add an adapter, e.g. --lora target_modules=all-linear, or leave quantization out");
}

nlohmann::ordered_json to_json(const AdapterSettings& a) {
  constexpr std::array kBias{"none", "all", "lora_only"};
  nlohmann::ordered_json j{{"target_modules", a.target_modules.empty() ? nlohmann::ordered_json(nullptr) : to_json(a.target_modules)},
                           {"modules_to_save", a.modules_to_save},
                           {"dtype", a.fp32 ? "fp32" : "base"}};
  if (!a.exclude_modules.empty()) j["exclude_modules"] = to_json(a.exclude_modules);
  if (a.classifier_is_saved) j["task_type"] = "SEQ_CLS";
  if (a.kind == AdapterKind::lora || a.kind == AdapterKind::lokr) j["r"] = a.r, j["alpha"] = a.alpha;
  if (!a.rank_pattern.empty()) j["rank_pattern"] = a.rank_pattern;
  if (!a.layers_to_transform.empty()) j["layers_to_transform"] = a.layers_to_transform;
  if (!a.layers_pattern.empty()) j["layers_pattern"] = a.layers_pattern;
  if (a.kind == AdapterKind::lora) {
    j["dropout"] = a.dropout;
    j["use_dora"] = a.use_dora;
    if (a.ai_toolkit) j["implementation"] = "ai-toolkit";
    j["bias"] = kBias[static_cast<size_t>(a.bias)];
  }
  if (a.kind == AdapterKind::lokr) {
    j["decompose_both"] = a.decompose_both;
    j["decompose_factor"] = a.decompose_factor;
  }
  if (a.feedforward_modules) j["feedforward_modules"] = to_json(*a.feedforward_modules);
  return j;
}

nlohmann::ordered_json to_json(const QuantizationSettings& q) {
  nlohmann::ordered_json j{{"type", q.type}};
  if (is_bitsandbytes(q) && q.type != "int8") j["double_quant"] = q.double_quant, j["compute_dtype"] = q.compute_dtype;
  if (q.type == "int8") j["threshold"] = q.threshold, j["outliers"] = q.outliers;
  j["skip_modules"] = q.skip_modules;
  j["prepare"] = q.prepare;
  return j;
}

std::string to_string(const AdapterSettings& a) {
  std::string out = a.use_dora ? "DoRA" : kTitles[static_cast<size_t>(a.kind)];
  if (a.kind == AdapterKind::lora || a.kind == AdapterKind::lokr) out += fmt::format(" r {}", a.r);
  if (!a.target_modules.empty()) out += " on " + to_string(a.target_modules);
  return out;
}

std::string to_string(const QuantizationSettings& q) { return q.type + " base"; }

}  // namespace plimsoll
