// config.json of a transformers model: architectures and model_type name the class, the model layer reads its sizes. Here: models
// within the model, how the weights are stored, code that comes with it.
#include <fmt/format.h>

#include "formats/format.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

std::string first_architecture(const Json& config) {
  const auto it = config.find("architectures");
  if (it == config.end() || !it->is_array() || it->empty() || !it->front().is_string()) return "";
  return it->front().get<std::string>();
}

std::string text_of(const Json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return "";
  if (!it->is_string())
    throw Error(fmt::format("[hf_config] {} is {}, expected a text", key, dump(*it).substr(0, 80)), "is it a transformers config.json?");
  return it->get<std::string>();
}

void add_candidates(ModelDescription& m, const Json& config, const std::string& note) {
  const std::string architecture = first_architecture(config), type = text_of(config, "model_type");
  if (!architecture.empty()) m.candidates.push_back({architecture, config, note});
  if (type.empty()) return;
  std::string taken = note;
  if (!architecture.empty() && note.empty())
    taken =
        fmt::format("{} is not simulated: it is taken for the usual model of type {}", printable(architecture, 80), printable(type, 80));
  m.candidates.push_back({type, config, taken});
  if (type.ends_with("_text")) m.candidates.push_back({type.substr(0, type.size() - 5), config, note});
}

// Language models inside of others. Their absent keys have the defaults of their own class.
void add_text_model(ModelDescription& m, const Json& whole) {
  for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config", "decoder"}) {
    const auto it = whole.find(key);
    if (it == whole.end() || !it->is_object()) continue;
    std::vector<std::string> others;
    for (const auto& item : whole.items())
      if (item.value().is_object() && item.key() != key && (item.key().ends_with("_config") || item.key() == "encoder") &&
          item.key() != "quantization_config" && item.key() != "generation_config")
        others.push_back(item.key());
    Json config = *it;
    if (!config.contains("tie_word_embeddings") && whole.contains("tie_word_embeddings"))
      config["tie_word_embeddings"] = whole["tie_word_embeddings"];
    const std::string note = fmt::format("only the language model in {} is simulated{}{}", key, others.empty() ? "" : ", without ",
                                         printable(join(others, ", "), 200));
    add_candidates(m, config, note);
    if (config.contains("text_config")) add_text_model(m, config);  // thinker_config holds another
  }
}

// torch_dtype says how the file is stored, and newer versions load it so.
void read_stored_type(Reader& r) {
  const char* key = r.find("dtype") ? "dtype" : "torch_dtype";
  const Json* type = r.find(key);
  if (!type || !type->is_string() || r.job.origin.contains("precision")) return;
  r.finding(Effect::note, key,
            fmt::format("from_pretrained loads weights in this type from transformers 5 on, and in float32 before, unless it is told; this "
                        "answer has precision {}",
                        to_string(r.job.precision)),
            "give --precision");
}

std::string short_type(const std::string& torch_type, const std::string& origin) {
  std::string type = torch_type.starts_with("torch.") ? torch_type.substr(6) : torch_type;
  if (type == "float32") return "fp32";
  if (type == "float16") return "fp16";
  if (type == "bfloat16") return "bf16";
  throw Error(fmt::format("[{}] '{}' is not known", origin, printable(torch_type, 80)), "known: float32, float16, bfloat16");
}

// Modules that stay as they are, but for the head, which is never quantised. Names of a model around the language model are not in it.
Json skipped_modules(Reader& r, const std::string& key) {
  Json skipped = Json::array();
  const Json* names = r.find(key);
  if (!names) return skipped;
  for (const Json& name : names->is_array() ? *names : Json::array({*names}))
    if (name.is_string() && !name.get<std::string>().ends_with("lm_head")) skipped.push_back(name);
  if (!r.document.value.contains("text_config") || skipped.empty()) return skipped;
  r.finding(Effect::partial, key, "not followed inside the language model: all of its linear layers are taken to be quantised");
  return Json::array();
}

// transformers' BitsAndBytesConfig with its class's defaults.
Json bitsandbytes(Reader& r) {
  const std::string at = "quantization_config.";
  const Json skipped = skipped_modules(r, at + "llm_int8_skip_modules");
  Json q;
  if (r.flag(at + "load_in_4bit", false) || r.flag(at + "_load_in_4bit", false)) {
    const std::string storage = r.text(at + "bnb_4bit_quant_storage", "uint8");
    q = {{"type", r.text(at + "bnb_4bit_quant_type", "fp4")},
         {"storage", storage == "uint8" ? storage : short_type(storage, r.origin(at + "bnb_4bit_quant_storage"))},
         {"double_quant", r.flag(at + "bnb_4bit_use_double_quant", false)},
         {"compute_dtype", short_type(r.text(at + "bnb_4bit_compute_dtype", "float32"), r.origin(at + "bnb_4bit_compute_dtype"))}};
  } else if (r.flag(at + "load_in_8bit", false) || r.flag(at + "_load_in_8bit", false)) {
    q = {{"type", "int8"}, {"threshold", r.number(at + "llm_int8_threshold", 6.0)}};
  } else {
    return nullptr;
  }
  if (!skipped.empty()) q["skip_modules"] = skipped;
  return q;
}

void read_quantization(Reader& r) {
  const Json* q = r.find("quantization_config");
  if (!q || r.job.origin.contains("quantization")) return;
  if (!q->is_object())
    throw Error(fmt::format("[{}] is {}, expected an object", r.origin("quantization_config"), dump(*q).substr(0, 80)),
                "is it a transformers config.json?");
  const bool looks_like_bnb = q->contains("load_in_4bit") || q->contains("load_in_8bit");
  const std::string method = lower(r.text("quantization_config.quant_method", looks_like_bnb ? "bitsandbytes" : ""));
  if (method == "bitsandbytes" || method == "bitsandbytes_4bit" || method == "bitsandbytes_8bit") {
    if (const Json settings = bitsandbytes(r); !settings.is_null()) r.set("quantization", settings, "quantization_config");
    return;
  }
  if (method == "mxfp4") {
    r.note(Effect::other,
           "the weights are stored as mxfp4 and cannot be trained so: they are counted as Mxfp4Config(dequantize=True) loads them");
    return;
  }
  throw Error(
      fmt::format("[{}] weights of quant_method '{}' are not simulated", r.document.name, printable(method, 40)),
      "--quantization none for the model before it was quantised; --quantization nf4 (with --lora) is near to other kinds of 4 bits");
}

Evidence evidence_of_hf_config(const Document& d) {
  return d.kind == Document::Kind::json ? keys_there(d, {"model_type", "architectures"}) : Evidence{};
}

ModelDescription model_of_hf_config(Reader& r) {
  const Json& config = r.document.value;
  ModelDescription m;
  add_candidates(m, config, "");
  add_text_model(m, config);
  if (m.candidates.empty())
    throw Error("[hf_config] " + r.document.path + " has neither model_type nor architectures", "is it a transformers config.json?");
  m.weights = weights_beside(r.document.folder());
  if (r.find("auto_map"))
    r.note(
        Effect::note,
        "the model comes with code of its own (auto_map), which trust_remote_code runs in place of transformers' class: memory may differ");
  read_stored_type(r);
  read_quantization(r);
  for (const std::string& key : r.document.duplicates)
    r.note(Effect::conflict, fmt::format("'{}' is there twice: the last one counts", printable(key, 80)));
  return m;
}

}  // namespace

const Format& hf_config_format() {
  static const Format kFormat{"hf_config",       "config.json of transformers", Rank::model, evidence_of_hf_config, name_model,
                              model_of_hf_config};
  return kFormat;
}

}  // namespace plimsoll
