#include "job/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr std::array kKinds{"lora", "lokr", "ia3", "ln_tuning"};
constexpr std::array kTitles{"LoRA", "LoKr", "IA3", "LN tuning"};

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  for (char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// "q_proj+v_proj" is a list of names; a regular expression with a '+' has other signs too.
Json flag_value(const std::string& text) {
  const bool names =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '+'; });
  if (names && text.find('+') != std::string::npos) return split_at(text, '+');
  return parse_scalar(text);
}

// A mapping, "key=value,key=value", or true for nothing but defaults.
Config mapping_of(const Json& value, const std::string& source) {
  if (value.is_boolean() && value.get<bool>()) return Config(source, Json::object());
  if (!value.is_string()) return Config(source, value);
  Json out = Json::object();
  for (const std::string& pair : split_at(value.get<std::string>(), ',')) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(fmt::format("[{}] '{}' is not KEY=VALUE", source, pair),
                  fmt::format("e.g. --{} r=16,target_modules=q_proj+v_proj", source));
    out[pair.substr(0, equals)] = flag_value(pair.substr(equals + 1));
  }
  return Config(source, out);
}

void require_known(const Config& c, const std::vector<std::string>& known) {
  for (const auto& item : c.values().items())
    if (std::find(known.begin(), known.end(), item.key()) == known.end())
      throw Error(fmt::format("[{}] '{}' is not known", c.source(), item.key()), did_you_mean(item.key(), known));
}

// Keys that cost no memory (how adapters are initialised and scaled) are known and change nothing.
std::vector<std::string> known_keys(AdapterKind kind) {
  std::vector<std::string> keys{"target_modules", "exclude_modules", "modules_to_save", "dtype", "autocast_adapter_dtype", "task_type"};
  auto add = [&](std::initializer_list<const char*> more) { keys.insert(keys.end(), more.begin(), more.end()); };
  if (kind == AdapterKind::lora)
    add({"r", "alpha", "lora_alpha", "dropout", "lora_dropout", "use_dora", "use_rslora", "bias", "init_lora_weights"});
  if (kind == AdapterKind::lokr) add({"r", "alpha", "decompose_both", "decompose_factor", "rank_dropout", "init_weights"});
  if (kind == AdapterKind::ia3) add({"feedforward_modules", "init_ia3_weights"});
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

void read_lora(const Config& c, AdapterSettings& a) {
  a.dropout = probability(c, {"dropout", "lora_dropout"});
  a.use_dora = c.flag({"use_dora"}, false);
  const std::string bias = choice(c, "bias", "none", {"none", "all", "lora_only"});
  a.bias = bias == "all" ? BiasTraining::all : bias == "none" ? BiasTraining::none : BiasTraining::adapted;
}

void read_lokr(const Config& c, AdapterSettings& a) {
  a.dropout = probability(c, {"rank_dropout"});
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
  const ModuleNames names = parse_module_names(value.is_string() ? flag_value(value.get<std::string>()) : value, source);
  if (names.all_linear || !names.pattern.empty())
    throw Error(fmt::format("[{}] {} is not a list of module names", source, dump(value).substr(0, 80)), "e.g. [lm_head, embed_tokens]");
  return names.names;
}

AdapterSettings parse_adapter(AdapterKind kind, const Json& value) {
  const Config c = mapping_of(value, to_string(kind));
  require_known(c, known_keys(kind));
  AdapterSettings a;
  a.kind = kind;
  const std::string source = c.source();
  if (const Json* v = c.find({"target_modules"})) a.target_modules = parse_module_names(*v, source + " target_modules");
  if (const Json* v = c.find({"exclude_modules"})) a.exclude_modules = parse_module_names(*v, source + " exclude_modules");
  if (const Json* v = c.find({"modules_to_save"})) a.modules_to_save = parse_name_list(*v, source + " modules_to_save");
  if (const Json* v = c.find({"feedforward_modules"})) a.feedforward_modules = parse_module_names(*v, source + " feedforward_modules");
  a.classifier_is_saved = c.text({"task_type"}, "") == "SEQ_CLS";
  a.fp32 = choice(c, "dtype", "fp32", {"fp32", "base"}) == "fp32" && c.flag({"autocast_adapter_dtype"}, true);
  a.r = c.size({"r"}, 8);
  a.alpha = c.number({"alpha", "lora_alpha"}, 8);
  if (kind == AdapterKind::lora) read_lora(c, a);
  if (kind == AdapterKind::lokr) read_lokr(c, a);
  return a;
}

QuantizationSettings parse_quantization(const Json& value) {
  Json given = value;
  if (value.is_string() && value.get<std::string>().find('=') == std::string::npos) given = {{"type", value}};
  const Config c = mapping_of(given, "quantization");
  require_known(c, {"type", "double_quant", "compute_dtype", "threshold", "outliers", "skip_modules", "prepare"});
  QuantizationSettings q;
  q.type = choice(c, "type", "nf4", {"nf4", "fp4", "int8"});
  q.double_quant = c.flag({"double_quant"}, false);
  q.compute_dtype = choice(c, "compute_dtype", "bf16", {"bf16", "fp16", "fp32"});
  q.threshold = c.number({"threshold"}, 6.0);
  if (!(q.threshold >= 0)) throw Error(fmt::format("[quantization] threshold {} is below 0", q.threshold), "0 looks for no outliers");
  q.outliers = c.integer({"outliers"}, 0);
  if (q.outliers < 0) throw Error(fmt::format("[quantization] outliers {} is below 0", q.outliers), "a number of columns, e.g. 6");
  if (const Json* v = c.find({"skip_modules"})) q.skip_modules = parse_name_list(*v, "quantization skip_modules");
  q.prepare = c.flag({"prepare"}, true);
  return q;
}

nlohmann::ordered_json to_json(const AdapterSettings& a) {
  constexpr std::array kBias{"none", "all", "lora_only"};
  nlohmann::ordered_json j{{"kind", to_string(a.kind)},
                           {"target_modules", a.target_modules.empty() ? nlohmann::ordered_json(nullptr) : to_json(a.target_modules)},
                           {"modules_to_save", a.modules_to_save},
                           {"dtype", a.fp32 ? "fp32" : "base"}};
  if (!a.exclude_modules.empty()) j["exclude_modules"] = to_json(a.exclude_modules);
  if (a.classifier_is_saved) j["task_type"] = "SEQ_CLS";
  if (a.kind == AdapterKind::lora || a.kind == AdapterKind::lokr) j["r"] = a.r, j["alpha"] = a.alpha;
  if (a.kind == AdapterKind::lora) {
    j["dropout"] = a.dropout;
    j["use_dora"] = a.use_dora;
    j["bias"] = kBias[static_cast<size_t>(a.bias)];
  }
  if (a.kind == AdapterKind::lokr) {
    j["rank_dropout"] = a.dropout;
    j["decompose_both"] = a.decompose_both;
    j["decompose_factor"] = a.decompose_factor;
  }
  if (a.feedforward_modules) j["feedforward_modules"] = to_json(*a.feedforward_modules);
  return j;
}

nlohmann::ordered_json to_json(const QuantizationSettings& q) {
  nlohmann::ordered_json j{{"type", q.type}};
  if (q.bits() == 4) j["double_quant"] = q.double_quant, j["compute_dtype"] = q.compute_dtype;
  if (q.bits() == 8) j["threshold"] = q.threshold, j["outliers"] = q.outliers;
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
