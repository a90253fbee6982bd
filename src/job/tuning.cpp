#include "job/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "job/adapter_over.h"
#include "job/field.h"
#include "job/fields.h"
#include "job/packed_storage.h"
#include "job/quantization_kind.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr std::array kKinds{"lora", "lokr", "ia3", "ln_tuning"};
constexpr std::array kTitles{"LoRA", "LoKr", "IA3", "LN tuning"};

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
  const std::string& source = c.source();
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

void read_rank_pattern(AdapterSettings& a, const Config& c) {
  const Json* pattern = c.find({"rank_pattern"});
  if (!pattern) return;
  if (!pattern->is_object())
    throw Error(fmt::format("[{}] rank_pattern {} is not a mapping", c.source(), dump(*pattern).substr(0, 80)), "e.g. {v_proj: 16}");
  const Config ranks(c.source() + " rank_pattern", *pattern);
  for (const auto& item : pattern->items()) a.rank_pattern[item.key()] = ranks.size({item.key().c_str()}, 0);
}

void read_decompose_factor(AdapterSettings& a, const Config& c) {
  a.decompose_factor = c.integer({"decompose_factor"}, -1);
  if (a.decompose_factor == 0 || a.decompose_factor < -1)
    throw Error(fmt::format("[lokr] decompose_factor {} is neither -1 nor above 0", a.decompose_factor), "-1 lets PEFT choose");
}

void refuse_rank_dropout(AdapterSettings&, const Config& c) {
  if (const double p = probability(c, {"rank_dropout"}); p > 0)
    throw Error(fmt::format("[lokr] rank_dropout {} is not simulated", p), "leave it out: nothing is dropped by default");
}

using AdapterFields = std::vector<Field<AdapterSettings>>;
using Printed = nlohmann::ordered_json;

Field<AdapterSettings> adapter_field(const char* key, void (*read)(AdapterSettings&, const Config&),
                                     Printed (*print)(const AdapterSettings&)) {
  return {key, read, print};
}

void add_common(AdapterFields& out) {
  using S = AdapterSettings;
  out.push_back(adapter_field(
      "target_modules",
      [](S& a, const Config& c) {
        if (const Json* v = c.find({"target_modules"})) a.target_modules = parse_module_names(*v, c.source() + " target_modules");
      },
      [](const S& a) { return a.target_modules.empty() ? Printed(nullptr) : to_json(a.target_modules); }));
  out.push_back(adapter_field(
      "exclude_modules",
      [](S& a, const Config& c) {
        if (const Json* v = c.find({"exclude_modules"})) a.exclude_modules = parse_module_names(*v, c.source() + " exclude_modules");
      },
      [](const S& a) { return a.exclude_modules.empty() ? field::left_out() : to_json(a.exclude_modules); }));
  out.push_back(adapter_field(
      "modules_to_save",
      [](S& a, const Config& c) {
        if (const Json* v = c.find({"modules_to_save"})) a.modules_to_save = parse_name_list(*v, c.source() + " modules_to_save");
      },
      [](const S& a) { return Printed(a.modules_to_save); }));
  out.push_back(adapter_field(
      "task_type", [](S& a, const Config& c) { a.classifier_is_saved = c.text({"task_type"}, "") == "SEQ_CLS"; },
      [](const S& a) { return a.classifier_is_saved ? Printed("SEQ_CLS") : field::left_out(); }));
  out.push_back(adapter_field(
      "dtype",
      [](S& a, const Config& c) {
        a.fp32 = choice(c, "dtype", "fp32", {"fp32", "base"}) == "fp32" && c.flag({"autocast_adapter_dtype"}, true);
      },
      [](const S& a) { return Printed(a.fp32 ? "fp32" : "base"); }));
  out.push_back(field::silent<S>("autocast_adapter_dtype"));
}

// Of lora and lokr.
void add_ranks(AdapterFields& out) {
  using S = AdapterSettings;
  out.push_back(field::size("r", &S::r));
  out.push_back(adapter_field("rank_pattern", read_rank_pattern,
                              [](const S& a) { return a.rank_pattern.empty() ? field::left_out() : Printed(a.rank_pattern); }));
  out.push_back(adapter_field(
      "layers_to_transform", [](S& a, const Config& c) { read_layers(c, a); },
      [](const S& a) { return a.layers_to_transform.empty() ? field::left_out() : Printed(a.layers_to_transform); }));
  out.push_back(adapter_field(  // read with them
      "layers_pattern", [](S&, const Config&) {},
      [](const S& a) { return a.layers_pattern.empty() ? field::left_out() : Printed(a.layers_pattern); }));
  out.push_back(adapter_field(
      "alpha",
      [](S& a, const Config& c) {
        a.alpha = c.number({"alpha", "lora_alpha"}, 8);
      },
      [](const S& a) { return Printed(a.alpha); }));
  out.push_back(field::silent<S>("alpha_pattern"));
}

void add_lora(AdapterFields& out) {
  using S = AdapterSettings;
  out.push_back(adapter_field(
      "dropout",
      [](S& a, const Config& c) {
        a.dropout = probability(c, {"dropout", "lora_dropout"});
      },
      [](const S& a) { return Printed(a.dropout); }));
  out.push_back(field::flag("use_dora", &S::use_dora));
  out.push_back(adapter_field(
      "implementation",
      [](S& a, const Config& c) {
        a.ai_toolkit = choice(c, "implementation", "peft", {"peft", "ai-toolkit"}) == "ai-toolkit";
        if (a.ai_toolkit && a.use_dora) throw Error("[lora] implementation ai-toolkit: DoRA is not simulated", "leave use_dora out");
      },
      [](const S& a) { return a.ai_toolkit ? Printed("ai-toolkit") : field::left_out(); }));
  out.push_back(adapter_field(
      "bias",
      [](S& a, const Config& c) {
        const std::string bias = choice(c, "bias", "none", {"none", "all", "lora_only"});
        a.bias = bias == "all" ? BiasTraining::all : bias == "none" ? BiasTraining::none : BiasTraining::adapted;
      },
      [](const S& a) {
        constexpr std::array kBias{"none", "all", "lora_only"};
        return Printed(kBias[static_cast<size_t>(a.bias)]);
      }));
  for (const char* key : {"lora_alpha", "lora_dropout"}) out.push_back(field::silent<S>(key));
}

// Keys that cost no memory (how adapters are initialised, scaled and stored) are known and change nothing.
Mapping<AdapterSettings> make_adapter_mapping(AdapterKind kind) {
  using S = AdapterSettings;
  Mapping<S> m{to_string(kind), fmt::format("e.g. --{} target_modules=q_proj+v_proj", to_string(kind)), {}};
  const auto add_silent = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys) m.fields.push_back(field::silent<S>(key));
  };
  add_common(m.fields);
  if (kind == AdapterKind::lora || kind == AdapterKind::lokr) add_ranks(m.fields);
  if (kind == AdapterKind::lora) {
    add_lora(m.fields);
    add_silent({"use_rslora", "init_lora_weights", "fan_in_fan_out"});
  }
  if (kind == AdapterKind::lokr) {
    m.fields.push_back({"rank_dropout", refuse_rank_dropout});
    m.fields.push_back(field::flag("decompose_both", &S::decompose_both));
    m.fields.push_back(adapter_field("decompose_factor", read_decompose_factor, [](const S& a) { return Printed(a.decompose_factor); }));
    add_silent({"init_weights"});
  }
  if (kind == AdapterKind::ia3) {
    m.fields.push_back(adapter_field(
        "feedforward_modules",
        [](S& a, const Config& c) {
          if (const Json* v = c.find({"feedforward_modules"})) a.feedforward_modules = parse_module_names(*v, "ia3 feedforward_modules");
        },
        [](const S& a) { return a.feedforward_modules ? to_json(*a.feedforward_modules) : field::left_out(); }));
    add_silent({"init_ia3_weights", "fan_in_fan_out"});
  }
  return m;
}

const Mapping<AdapterSettings>& adapter_mapping(AdapterKind kind) {
  static const std::array kMappings{make_adapter_mapping(AdapterKind::lora), make_adapter_mapping(AdapterKind::lokr),
                                    make_adapter_mapping(AdapterKind::ia3), make_adapter_mapping(AdapterKind::ln_tuning)};
  return kMappings[static_cast<size_t>(kind)];
}

// What people call it, and the type that this is in bitsandbytes. 4 bits in general are nf4: it and fp4 differ in no byte.
std::string usual_type(const std::string& word) {
  static constexpr std::pair<const char*, const char*> kWords[] = {
      {"4bit", "nf4"},          {"4-bit", "nf4"},        {"4", "nf4"},     {"int4", "nf4"},   {"load_in_4bit", "nf4"},
      {"bnb", "nf4"},           {"bitsandbytes", "nf4"}, {"8bit", "int8"}, {"8-bit", "int8"}, {"8", "int8"},
      {"load_in_8bit", "int8"}, {"llm.int8", "int8"},    {"float8", "fp8"}};
  for (const auto& [usual, type] : kWords)
    if (word == usual) return type;
  return word;
}

void read_type(QuantizationSettings& q, const Config& c) {
  std::vector<std::string> types{"nf4",   "fp4",   "int8",  "fp8",   "qfloat8", "uint2",     "uint3",
                                 "uint4", "uint5", "uint6", "uint7", "gptq",    "gptq-torch"};
  for (const std::string& type : stored_types()) types.push_back(type);
  const std::string word = c.text({"type"}, "nf4"), usual = usual_type(word);
  q.type = usual == word ? choice(c, "type", "nf4", types) : usual;
  q.type = with_storage(q.type, c.text({"storage"}, "uint8"));
}

void read_threshold(QuantizationSettings& q, const Config& c) {
  q.threshold = c.number({"threshold"}, 6.0);
  if (!(q.threshold >= 0)) throw Error(fmt::format("[quantization] threshold {} is below 0", q.threshold), "0 looks for no outliers");
}

void read_outliers(QuantizationSettings& q, const Config& c) {
  q.outliers = c.integer({"outliers"}, 0);
  if (q.outliers < 0) throw Error(fmt::format("[quantization] outliers {} is below 0", q.outliers), "a number of columns, e.g. 6");
}

void read_prepare(QuantizationSettings& q, const Config& c) {
  q.prepare = c.flag({"prepare"}, is_bitsandbytes(q) && !packed_storage(q));  // one type for all is what such a storage is for
  if (q.prepare && !is_bitsandbytes(q) && q.type.rfind("gptq", 0) != 0)       // of GPTQ's models PEFT casts nothing, loops of one's own may
    throw Error("[quantization] prepare: prepare_model_for_kbit_training is about bitsandbytes, not " + q.type, "leave prepare out");
}

const Mapping<QuantizationSettings>& quantization_mapping() {
  using S = QuantizationSettings;
  const auto of_4_bit = [](const S& q) { return is_bitsandbytes(q) && q.type != "int8"; };
  const auto of_int8 = [](const S& q) { return q.type == "int8"; };
  const auto field_of = [](const char* key, auto read, auto print) { return Field<S>{key, read, print}; };
  static const Mapping<S> kMapping{
      "quantization",
      "e.g. --quantization nf4, or type=nf4,double_quant=true",
      {field_of("type", read_type, [](const S& q) { return q.type; }), field::silent<S>("storage"),
       field::only(of_4_bit, field::flag("double_quant", &S::double_quant)),
       field::only(of_4_bit, field_of(
                                 "compute_dtype",
                                 [](S& q, const Config& c) {
                                   q.compute_dtype = choice(c, "compute_dtype", "bf16", {"bf16", "fp16", "fp32"});
                                 },
                                 [](const S& q) { return q.compute_dtype; })),
       field::only(of_int8, field_of("threshold", read_threshold, [](const S& q) { return q.threshold; })),
       field::only(of_int8, field_of("outliers", read_outliers, [](const S& q) { return q.outliers; })),
       field_of(
           "skip_modules",
           [](S& q, const Config& c) {
             if (const Json* v = c.find({"skip_modules"})) q.skip_modules = parse_name_list(*v, "quantization skip_modules");
           },
           [](const S& q) { return q.skip_modules; }),
       field_of("prepare", read_prepare, [](const S& q) { return q.prepare; })}};
  return kMapping;
}

}  // namespace

const char* to_string(AdapterKind k) { return kKinds[static_cast<size_t>(k)]; }

namespace {

// What `lora: true` is: the rank and the targets of QLoRA's recipes, as PEFT's guides, TRL and Unsloth have them.
Json usual_lora() { return {{"r", 16}, {"target_modules", "all-linear"}}; }

// Everyday names of keys where PEFT has another and no such key.
std::string in_pefts_words(AdapterKind kind, const std::string& key) {
  static constexpr std::pair<const char*, const char*> kNames[] = {
      {"rank", "r"}, {"dim", "r"}, {"targets", "target_modules"}, {"modules", "target_modules"}};
  const auto knows = [&](const std::string& name) {
    const auto& fields = adapter_mapping(kind).fields;
    return std::any_of(fields.begin(), fields.end(), [&](const auto& f) { return name == f.key; });
  };
  for (const auto& [typed, name] : kNames)
    if (key == typed && !knows(key) && knows(name)) return name;
  return key;
}

Json in_pefts_words(AdapterKind kind, const Json& value) {
  if (value.is_object()) {
    Json out = Json::object();
    for (const auto& item : value.items()) {
      const std::string key = in_pefts_words(kind, item.key());
      if (out.contains(key) || (key != item.key() && value.contains(key)))
        throw Error(fmt::format("[{}] '{}' and '{}' are the same", to_string(kind), item.key(), key), "leave one of them out");
      out[key] = item.value();
    }
    return out;
  }
  if (!value.is_string() || value.get<std::string>().find('=') == std::string::npos) return value;
  std::vector<std::string> pairs = split_at(value.get<std::string>(), ',');
  for (std::string& pair : pairs)
    if (const size_t equals = pair.find('='); equals != std::string::npos)
      pair = in_pefts_words(kind, pair.substr(0, equals)) + pair.substr(equals);
  return join(pairs, ",");
}

Json fields_of_text(AdapterKind kind, const std::string& text) {
  return text == "{}" ? Json::object() : read_pairs(split_at(text, ','), to_string(kind), adapter_mapping(kind).example);
}

}  // namespace

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
  AdapterSettings a;
  a.kind = kind;
  const bool usual = kind == AdapterKind::lora && value == true;
  return adapter_mapping(kind).read(usual ? usual_lora() : in_pefts_words(kind, value), std::move(a));
}

AdapterSettings parse_adapter_over(const AdapterSettings& chosen, const Json& value) {
  if (value == true) return chosen;
  Json given = in_pefts_words(chosen.kind, value);
  if (given.is_string()) given = fields_of_text(chosen.kind, given.get<std::string>());
  Json all = to_json(chosen);
  for (const auto& item : given.items()) {
    const std::string& key = item.key();
    all[key == "lora_alpha" ? "alpha" : key == "lora_dropout" ? "dropout" : key] = item.value();
  }
  return parse_adapter(chosen.kind, all);
}

bool is_bitsandbytes(const QuantizationSettings& q) { return q.type == "nf4" || q.type == "fp4" || q.type == "int8" || packed_storage(q); }

QuantizationSettings parse_quantization(const Json& value) {
  Json given = value;
  if (value == 4 || value == 8) given = {{"type", std::to_string(value.get<int>())}};
  if (value.is_string() && value.get<std::string>().find('=') == std::string::npos) given = {{"type", value}};
  return quantization_mapping().read(given);
}

void check(const TuningSettings& t, Problems& out) {
  if (t.adapter && !t.trainable.empty())
    out.push_back({fmt::format("[trainable] '{}' beside {}: PEFT freezes the model and trains the adapters alone", t.trainable.front(),
                               to_string(t.adapter->kind)),
                   fmt::format("name it in {}'s modules_to_save, or leave the adapter out", to_string(t.adapter->kind))});
  if (t.adapter)
    for (const std::string& name : t.adapter->modules_to_save)
      if (std::find(t.frozen.begin(), t.frozen.end(), name) != t.frozen.end())
        out.push_back(
            {fmt::format("[modules_to_save] '{}' is frozen too", name), "modules_to_save are trained in full: name it in one of them"});
  if (t.quantization && !t.adapter && t.trainable.empty())
    out.push_back(
        {fmt::format("[quantization] {} without an adapter: quantised weights have no gradient, and transformers' Trainer refuses "
                     "to train a purely quantised model",
                     t.quantization->type),
         "add an adapter, e.g. --lora target_modules=all-linear, or leave quantization out"});
}

nlohmann::ordered_json to_json(const AdapterSettings& a) { return adapter_mapping(a.kind).print(a); }
nlohmann::ordered_json to_json(const QuantizationSettings& q) { return quantization_mapping().print(q); }

std::string to_string(const AdapterSettings& a) {
  std::string out = a.use_dora ? "DoRA" : kTitles[static_cast<size_t>(a.kind)];
  if (a.kind == AdapterKind::lora || a.kind == AdapterKind::lokr) out += fmt::format(" r {}", a.r);
  if (!a.target_modules.empty()) out += " on " + to_string(a.target_modules);
  return out;
}

std::string to_string(const QuantizationSettings& q) { return q.type + " base"; }

}  // namespace plimsoll
