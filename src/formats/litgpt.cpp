// litgpt's fine-tuning files, and `litgpt finetune_lora checkpoints/meta-llama/Llama-3.2-1B --config x.yaml --train.micro_batch_size 2`.
// Rules: litgpt/finetune/lora.py and full.py of litgpt 0.5.13 (June 2026).
#include <fmt/format.h>

#include <filesystem>

#include "formats/format.h"
#include "formats/launch.h"
#include "formats/trainer.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kTrainer = "litgpt";

// "checkpoints/meta-llama/Meta-Llama-3.1-8B-Instruct" -> "litgpt-llama-3.1-8b"
std::string preset_of(const std::string& checkpoint) {
  std::string name = lower(fs::path(checkpoint).filename().string());
  if (name.starts_with("meta-")) name.erase(0, 5);
  if (name.starts_with("tinyllama-1.1b")) name = "tinyllama-1.1b";
  for (const char* ending : {"-hf", "-instruct", "-chat", "-it"})
    if (name.ends_with(ending)) name.erase(name.size() - std::string_view(ending).size());
  return "litgpt-" + name;
}

// model_config.yaml, which litgpt writes beside the weights, says more than the folder's name.
void read_model(Reader& r) {
  const std::string checkpoint = r.text("checkpoint_dir");
  if (checkpoint.empty())
    throw Error(fmt::format("[{}] checkpoint_dir is not given", r.document.name),
                "litgpt needs it: a folder, or a name like google/gemma-2b");
  const fs::path described = fs::path(r.document.folder()) / checkpoint / "model_config.yaml";
  std::error_code error;
  if (!fs::is_regular_file(described, error)) return r.set("model", preset_of(checkpoint), "checkpoint_dir");
  r.set("model", "litgpt", "checkpoint_dir");
  const Document model = read_document(described.string());
  if (!model.value.is_object())
    throw Error("[" + model.name + "] holds no mapping of keys to values", "litgpt writes it beside the weights");
  for (const auto& [key, value] : model.value.items())
    if (!value.is_null()) r.config(key.c_str(), value, model.name + ": " + key);
}

// Fabric's names: "true" keeps weights and computes in that type, "mixed" is autocast over fp32 weights.
void read_precision(Reader& r) {
  const std::string name = r.text("precision", "bf16-mixed");  // get_default_supported_precision, where bf16 is
  const std::string origin = r.has("precision") ? r.origin("precision") : "default of litgpt";
  if (name == "32-true" || name == "32") return set_types(r, "fp32", "", origin);
  for (const auto& [prefix, type] : {std::pair{"bf16-", "bf16"}, {"16-", "fp16"}}) {
    if (name == std::string(prefix) + "true") return set_types(r, type, "", origin);
    if (name == std::string(prefix) + "mixed") return set_types(r, "fp32", type, origin);
  }
  throw Error(fmt::format("[{}] precision '{}' is not known", r.document.name, printable(name, 40)),
              "known: bf16-true, bf16-mixed, 16-true, 16-mixed, 32-true");
}

void read_quantization(Reader& r) {
  const std::string name = r.text("quantize");
  if (name.empty()) return;
  static const std::map<std::string, Json> kTypes{{"bnb.nf4", {{"type", "nf4"}, {"double_quant", false}}},
                                                  {"bnb.nf4-dq", {{"type", "nf4"}, {"double_quant", true}}},
                                                  {"bnb.fp4", {{"type", "fp4"}, {"double_quant", false}}},
                                                  {"bnb.fp4-dq", {{"type", "fp4"}, {"double_quant", true}}},
                                                  {"bnb.int8-training", {{"type", "int8"}}}};
  const auto it = kTypes.find(name);
  if (it == kTypes.end())
    throw Error(fmt::format("[{}] quantize '{}' is not known", r.document.name, printable(name, 40)),
                "known: bnb.nf4, bnb.nf4-dq, bnb.fp4, bnb.fp4-dq, bnb.int8-training");
  Json settings = it->second;
  settings["prepare"] = false;  // nothing is lifted to fp32
  r.set("quantization", settings, "quantize");
  if (r.text("precision", "bf16-mixed").find("mixed") != std::string::npos)
    r.finding(Effect::refused, "quantize", "not with mixed precision: set precision to bf16-true", "setup() raises a ValueError");
}

void read_adapter(Reader& r) {
  Json targets = Json::array();
  for (const auto& [key, name, usual] : {std::tuple{"lora_query", "attn.query", true},
                                         {"lora_key", "attn.key", false},
                                         {"lora_value", "attn.value", true},
                                         {"lora_projection", "attn.proj", false},
                                         {"lora_head", "lm_head", false}})
    if (r.flag(key, usual)) targets.push_back(name);
  if (r.flag("lora_mlp", false)) targets.insert(targets.end(), {"mlp.fc", "mlp.fc_1", "mlp.fc_2", "mlp.proj"});
  if (targets.empty())
    throw Error(fmt::format("[{}] no layer has an adapter: every lora_... is false", r.document.name),
                "set lora_query and lora_value to true");
  // A pattern, since a feed-forward has only some of these.
  std::string pattern;
  for (const Json& target : targets) {
    if (!pattern.empty()) pattern += '|';
    for (const char c : target.get<std::string>()) pattern += c == '.' ? std::string("[.]") : std::string(1, c);
  }
  r.set("lora",
        {{"r", r.integer("lora_r", 8)},
         {"lora_alpha", r.number("lora_alpha", 16)},
         {"lora_dropout", r.number("lora_dropout", 0.05)},
         {"autocast_adapter_dtype", false},  // LoRALinear has the type of its base
         {"target_modules", "(?:.*[.])?(?:" + pattern + ")"}},
        r.has("lora_r") ? "lora_r" : "checkpoint_dir");
}

// "AdamW", "torch.optim.SGD", or a class with its arguments. A quantised base always gets bitsandbytes' PagedAdamW.
void read_optimizer(Reader& r, bool quantized) {
  const Json* value = r.find("optimizer");
  const bool described = value && value->is_object();
  std::string name = described ? r.text("optimizer.class_path", "AdamW") : r.text("optimizer", "AdamW");
  name = name.substr(name.rfind('.') + 1);
  if (quantized && name.find("AdamW") == std::string::npos)
    r.finding(Effect::refused, "optimizer", "a quantised base is trained with AdamW alone",
              "instantiate_bnb_optimizer raises a ValueError");
  const Json* args = described ? r.find("optimizer.init_args") : nullptr;
  set_optimizer(r, quantized ? "PagedAdamW" : name, args && !quantized ? *args : Json(), "optimizer");
  r.ignore({"optimizer"});
}

// lora.py shards with FSDP2, full.py with FSDP1, both with every block checkpointed.
void read_devices(Reader& r, bool lora) {
  if (r.text("devices") == "auto") r.finding(Effect::unknown, "devices", "all GPUs of the machine: taken as one");
  const int64_t world = (r.text("devices") == "auto" ? 1 : r.integer("devices", 1)) * r.integer("num_nodes", 1);
  const int64_t micro = r.integer("train.micro_batch_size", 1), global = r.integer("train.global_batch_size", 16);
  if (world < 1 || micro < 1 || global < 1)
    throw Error(fmt::format("[{}] devices, num_nodes and both batch sizes must be above 0", r.document.name), "e.g. devices: 1");
  if (global / world < micro)
    throw Error(
        fmt::format("[{}] global_batch_size {} over {} devices is below micro_batch_size {}", r.document.name, global, world, micro),
        "litgpt asserts that at least one micro-batch makes a step");
  set_or_default(r, "batch", micro, "train.micro_batch_size", kTrainer);
  set_or_default(r, "eval_batch", micro, "train.micro_batch_size", kTrainer);
  set_or_default(r, "accumulation", global / world / micro, "train.global_batch_size", kTrainer);
  if (world == 1) return;
  if (r.has("quantize")) r.finding(Effect::refused, "quantize", "not on several devices", "setup() raises a NotImplementedError");
  r.set(lora ? "fsdp" : "fsdp1", {{"world", world}}, "devices");
  r.set("checkpointing", true, "devices");
}

void read_settings(Reader& r, bool lora) {
  r.job.trainer = kTrainer;
  read_model(r);
  read_precision(r);
  if (lora) read_adapter(r);
  if (lora) read_quantization(r);
  read_optimizer(r, lora && r.has("quantize"));
  if (r.set("seq", "train.max_seq_length"))
    r.config("block_size", r.integer("train.max_seq_length", 0), r.origin("train.max_seq_length"));  // fit() makes tables of that length
  else
    r.note(Effect::note, "train.max_seq_length is not set: samples have the length of the data. Say it with --seq");
  read_devices(r, lora);
  for (const char* key : {"train.max_tokens", "train.max_norm", "train.tie_embeddings", "train.lr_warmup_fraction"})
    if (r.has(key)) r.finding(Effect::refused, key, "the fine-tuning scripts do not support it", "validate_args raises a ValueError");
  r.ignore({"data", "train", "eval", "log", "out_dir", "logger_name", "seed", "access_token", "resume", "lora_query", "lora_key",
            "lora_value", "lora_projection", "lora_mlp", "lora_head", "lora_alpha", "lora_dropout"});
  r.finish();
}

bool is_object_at(const Json& value, const char* key) { return value.contains(key) && value[key].is_object(); }

// Of all trainers only litgpt says a checkpoint's folder beside batch sizes in `train`.
Evidence evidence_of_litgpt(const Document& d) {
  if (d.kind == Document::Kind::command) return program_of(d) == "litgpt" ? Evidence{"litgpt"} : Evidence{};
  if (!d.value.is_object() || !has_keys(d, {"checkpoint_dir"}) || !is_object_at(d.value, "train")) return {};
  Evidence keys = keys_there(d, {"checkpoint_dir", "train.micro_batch_size", "train.global_batch_size"});
  return keys.size() > 1 ? keys : Evidence{};
}

void read_litgpt(Reader& r) {
  if (r.document.kind != Document::Kind::command) return read_settings(r, has_keys(r.document, {"lora_r"}));
  read_launch(r);
  const Json& words = r.document.value.at("arguments");
  const std::string script = !words.empty() && words[0].is_string() ? words[0].get<std::string>() : "";
  if (script != "finetune" && script != "finetune_lora" && script != "finetune_full")
    throw Error(fmt::format("[{}] litgpt {} is not read", r.document.name, printable(script, 40)),
                "read are finetune, finetune_lora and finetune_full");
  Document settings = settings_of(r, {"config"});
  if (words.size() > 1 && words[1].is_string()) overlay(settings, {{"checkpoint_dir", words[1]}}, "command line: ");
  Reader inner(r.job, settings);
  read_settings(inner, script != "finetune_full");
}

Encoded encode_batch(const EncodeRequest& w) {
  Encoded out{{{"train.micro_batch_size", w.job.batch}}, ""};
  for (KeyValue& product : product_of_batch(w, "train.global_batch_size")) out.keys.push_back(std::move(product));
  return out;
}

Encoded encode_precision(const EncodeRequest& w) {
  const bool mixed = w.job.precision == Precision::amp || w.job.precision == Precision::amp_fp16;
  const bool half = w.job.precision == Precision::fp16 || w.job.precision == Precision::amp_fp16;
  if (w.job.autocast && !mixed) return {{}, "Fabric has autocast over fp32 weights alone"};
  if (w.job.precision == Precision::fp32) return {{{"precision", "32-true"}}, ""};
  return {{{"precision", std::string(half ? "16" : "bf16") + (mixed ? "-mixed" : "-true")}}, ""};
}

Encoded encode_lora(const EncodeRequest& w) {
  const std::optional<AdapterSettings>& a = w.job.tuning.adapter;
  if (!a || !w.before.tuning.adapter || a->kind != AdapterKind::lora ||
      a->target_modules.pattern != w.before.tuning.adapter->target_modules.pattern)
    return {{}, "the script decides: litgpt finetune_lora or finetune_full, and lora_query, lora_key, ... which layers have adapters"};
  return {{{"lora_r", a->r}, {"lora_alpha", plain_number(a->alpha)}, {"lora_dropout", plain_number(a->dropout)}}, ""};
}

const SettingsEncoder& writes_litgpt() {
  static const SettingsEncoder kWrites{{{"batch", "train.micro_batch_size", encode_batch},
                                        {"accumulation", "train.global_batch_size", encode_batch},
                                        {"seq", "train.max_seq_length"},
                                        {"precision", "precision", encode_precision},
                                        {"autocast", "precision", encode_precision},
                                        {"lora", "lora_r", encode_lora}},
                                       FlagStyle::dotted};
  return kWrites;
}

}  // namespace

const Format& litgpt_format() {
  static const Format kFormat{"litgpt",     "litgpt's fine-tuning YAML or command", Rank::trainer, evidence_of_litgpt, read_litgpt, nullptr,
                              writes_litgpt};
  return kFormat;
}

}  // namespace plimsoll
