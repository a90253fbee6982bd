// torchtune's recipe files, and `tune run --nproc_per_node 2 lora_finetune_distributed --config x.yaml batch_size=4`. Its models are its
// own code; those of the same shape here follow transformers. Rules: torchtune's recipes (April 2026).
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "formats/format.h"
#include "formats/launch.h"
#include "formats/objectives.h"
#include "formats/trainer.h"
#include "job/distribution.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kTrainer = "torchtune";

// Builders in torchtune.models, without lora_ and qlora_ and without what they are tuned for.
const std::map<std::string, std::string> kModels{{"llama2_7b", "llama-2-7b"},
                                                 {"llama2_13b", "llama-2-13b"},
                                                 {"llama2_70b", "llama-2-70b"},
                                                 {"code_llama2_7b", "llama-2-7b"},
                                                 {"llama3_8b", "llama-3-8b"},
                                                 {"llama3_70b", "llama-3-70b"},
                                                 {"llama3_1_8b", "llama-3.1-8b"},
                                                 {"llama3_1_70b", "llama-3.1-70b"},
                                                 {"llama3_1_405b", "llama-3.1-405b"},
                                                 {"llama3_2_1b", "llama-3.2-1b"},
                                                 {"llama3_2_3b", "llama-3.2-3b"},
                                                 {"llama3_3_70b", "llama-3.3-70b"},
                                                 {"mistral_7b", "mistral-7b"},
                                                 {"gemma_2b", "gemma-2b"},
                                                 {"gemma_7b", "gemma-7b"},
                                                 {"gemma2_2b", "gemma-2-2b"},
                                                 {"gemma2_9b", "gemma-2-9b"},
                                                 {"gemma2_27b", "gemma-2-27b"},
                                                 {"phi3_mini", "phi-3-mini"},
                                                 {"phi4_14b", "phi-4"},
                                                 {"qwen2_0_5b", "qwen2-0.5b"},
                                                 {"qwen2_1_5b", "qwen2-1.5b"},
                                                 {"qwen2_7b", "qwen2-7b"},
                                                 {"qwen2_5_0_5b", "qwen2.5-0.5b"},
                                                 {"qwen2_5_1_5b", "qwen2.5-1.5b"},
                                                 {"qwen2_5_3b", "qwen2.5-3b"},
                                                 {"qwen2_5_7b", "qwen2.5-7b"},
                                                 {"qwen2_5_14b", "qwen2.5-14b"},
                                                 {"qwen2_5_32b", "qwen2.5-32b"},
                                                 {"qwen2_5_72b", "qwen2.5-72b"},
                                                 {"qwen3_0_6b", "qwen3-0.6b"},
                                                 {"qwen3_1_7b", "qwen3-1.7b"},
                                                 {"qwen3_4b", "qwen3-4b"},
                                                 {"qwen3_8b", "qwen3-8b"},
                                                 {"qwen3_14b", "qwen3-14b"},
                                                 {"qwen3_32b", "qwen3-32b"}};

std::string last_part(const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); }

struct Builder {
  std::string name;  // "llama3_1_8b"
  bool lora = false, quantized = false;
};

Builder builder_of(const std::string& component) {
  Builder b{last_part(component)};
  b.quantized = b.name.starts_with("qlora_");
  b.lora = b.quantized || b.name.starts_with("lora_");
  if (b.lora) b.name.erase(0, b.quantized ? 6 : 5);
  for (const char* ending : {"_instruct", "_base"})
    if (b.name.ends_with(ending)) b.name.erase(b.name.size() - std::string(ending).size());
  return b;
}

void read_model(Reader& r, const Builder& b) {
  if (const auto it = kModels.find(b.name); it != kModels.end()) {
    r.set("model", it->second, "model._component_");
    r.note(Effect::note, fmt::format("simulated with transformers' code of {}, torchtune has its own of the same shape", it->second));
  } else if (r.has("checkpointer.checkpoint_dir")) {
    set_model(r, "checkpointer.checkpoint_dir");
  } else {
    throw Error(fmt::format("[{}] '{}' is not known", r.origin("model._component_"), printable(b.name, 80)),
                "name a model beside the file");
  }
  r.ignore({"checkpointer"});
}

// modules in transformers' names
void read_adapter(Reader& r, const Builder& b) {
  if (!b.lora) return r.ignore({"model"});
  Json targets = Json::array();
  if (const Json* modules = r.find("model.lora_attn_modules"); modules && modules->is_array())
    for (const Json& module : *modules) targets.push_back(module == "output_proj" ? Json("o_proj") : module);
  if (r.flag("model.apply_lora_to_mlp", false)) targets.insert(targets.end(), {"gate_proj", "up_proj", "down_proj"});
  if (r.flag("model.apply_lora_to_output", false)) targets.push_back("lm_head");
  Json lora{{"r", r.integer("model.lora_rank", 8)},
            {"lora_alpha", r.number("model.lora_alpha", 16)},
            {"lora_dropout", r.number("model.lora_dropout", 0.0)},
            {"autocast_adapter_dtype", false},  // adapters have the recipe's dtype
            {"target_modules", targets}};
  if (r.flag("model.use_dora", false)) lora["use_dora"] = true;
  r.set("lora", lora, r.has("model.lora_rank") ? "model.lora_rank" : "model._component_");
  if (b.quantized || r.flag("model.quantize_base", false)) {
    r.set("quantization", {{"type", "nf4"}, {"double_quant", true}, {"prepare", false}}, "model._component_");
    r.finding(Effect::partial, "model._component_", "the base is in torchao's NF4, simulated as bitsandbytes' with double quantisation");
  }
  r.ignore({"model"});
}

// "torch.optim.AdamW", "bitsandbytes.optim.PagedAdamW8bit", "torchao.optim.AdamW8bit"
void read_optimizer(Reader& r) {
  const std::string component = r.text("optimizer._component_");
  const Json* args = r.find("optimizer");
  r.ignore({"optimizer"});
  if (component.empty()) return;
  std::string name = last_part(component);
  if (name == "CPUOffloadOptimizer") {
    const Json* gradients = r.find("optimizer.offload_gradients");
    r.set("offload_optimizer", {{"gradients", gradients && *gradients == true}}, "optimizer._component_");
    name = last_part(r.text("optimizer.base_optimizer_cls", "torch.optim.AdamW"));
  } else if (component.starts_with("torchao.")) {
    name = "torchao." + name;
  }
  set_optimizer(r, name, args ? *args : Json(), "optimizer._component_");
}

void read_loss(Reader& r) {
  const std::string loss = last_part(r.text("loss._component_"));
  if (loss == "LinearCrossEntropyLoss") r.set("loss_kernel", "chunked", "loss._component_");
  if (loss == "CEWithChunkedOutputLoss") r.set("loss_kernel", "chunked-output", "loss._component_");
  r.set("loss_chunks", "loss.num_output_chunks");
  if (!loss.empty() && loss.find("CrossEntropy") == std::string::npos && !loss.starts_with("CE"))
    r.finding(Effect::unknown, "loss._component_", "this loss is not simulated: the model's own is");
  r.ignore({"loss"});
  Objective o;
  o.name = loss == "DPOLoss" || loss == "RSOLoss"   ? "dpo"
           : loss == "SimPOLoss"                    ? "simpo"
           : loss == "PPOLoss"                      ? "ppo"
           : loss.find("GRPO") != std::string::npos ? "grpo"
           : loss.find("KL") != std::string::npos   ? "kd"
                                                    : "";
  o.adapter = !r.has("reference_checkpointer") && !r.has("ref_checkpointer");
  o.vllm = r.text("inference.engine") == "vllm";
  note_objective(r, o);
}

void read_memory_choices(Reader& r) {
  const bool checkpoints = r.flag("enable_activation_checkpointing", false), offload = r.flag("enable_activation_offloading", false);
  r.set("checkpointing", checkpoints, "enable_activation_checkpointing");
  if (offload && checkpoints) r.set("offload_activations", "pinned", "enable_activation_offloading");
  if (offload && !checkpoints)
    r.finding(Effect::refused, "enable_activation_offloading", "it needs enable_activation_checkpointing",
              "the recipe raises a RuntimeError");
  const bool clips = r.has("clip_grad_norm");
  if (clips && r.text("clip_grad_norm") != "inf") r.set("clip", "clip_grad_norm");
  if (r.flag("optimizer_in_bwd", false)) {
    const bool accumulates = r.job.accumulation > 1;
    if (accumulates) r.finding(Effect::refused, "optimizer_in_bwd", "gradients cannot be accumulated", "the recipe raises a RuntimeError");
    if (clips) r.finding(Effect::refused, "optimizer_in_bwd", "gradients cannot be clipped", "the recipe raises a RuntimeError");
    if (!accumulates && !clips) r.set("optimizer_in_backward", true, "optimizer_in_bwd");
  }
  if (r.flag("compile", false)) r.set("compile", true, "compile");
}

void read_settings(Reader& r, bool distributed) {
  r.job.trainer = kTrainer;
  const Builder builder = builder_of(r.text("model._component_"));
  read_model(r, builder);
  const std::string type = short_type(r.text("dtype", "bf16"));
  if (type.empty())
    throw Error(fmt::format("[{}] '{}' is not known", r.origin("dtype"), printable(r.text("dtype"), 40)), "known: fp32, bf16");
  if (type == "fp16") r.finding(Effect::refused, "dtype", "torchtune does not train in fp16", "the recipe raises a ValueError");
  set_types(r, type, "", r.has("dtype") ? r.origin("dtype") : "default of torchtune");
  if (!r.set("batch", "batch_size")) r.set_default("batch", 1, kTrainer);
  r.set("accumulation", "gradient_accumulation_steps");
  if (!r.set("seq", "tokenizer.max_seq_len"))
    r.note(Effect::note, "tokenizer.max_seq_len is not set: samples have the length of the data. Say it with --seq");
  if (r.flag("dataset.packed", false) && !r.has("tokenizer.max_seq_len"))
    r.finding(Effect::refused, "dataset.packed", "packing needs tokenizer.max_seq_len", "PackedDataset raises a ValueError");
  read_adapter(r, builder);
  read_optimizer(r);
  read_loss(r);
  read_memory_choices(r);
  r.set_default("drop_output", true, kTrainer);  // `del logits` before backward
  if (r.job.parallel.ddp || distributed) {
    const int64_t world = world_size(r.job);
    const char* path = "model._component_";
    if (r.integer("tensor_parallel_dim", 1) > 1) {
      not_simulated(r, "tensor_parallel_dim", "torchtune's tensor parallelism");
    } else if (world > 1) {  // its recipes shard every layer, in the type of the weights
      apply_setting(r.job, "ddp", false, r.origin(path));
      r.set("fsdp", {{"world", world}, {"reshard", r.flag("fsdp_reshard_after_forward", true)}}, path);
    } else {
      r.finding(Effect::partial, path, "a distributed recipe: how many processes there are is not said here; --fsdp world=N");
    }
  }
  if (r.flag("fsdp_cpu_offload", false)) r.finding(Effect::unknown, "fsdp_cpu_offload", "not simulated: all is on the device");
  if (r.has("batch_size_val") && r.has("dataset_val")) r.set("eval_batch", "batch_size_val");
  r.ignore({"output_dir",
            "tokenizer",
            "dataset",
            "dataset_val",
            "run_val_every_n_steps",
            "batch_size_val",
            "seed",
            "shuffle",
            "lr_scheduler",
            "epochs",
            "max_steps_per_epoch",
            "metric_logger",
            "log_every_n_steps",
            "log_peak_memory_stats",
            "log_level",
            "device",
            "profiler",
            "resume_from_checkpoint",
            "save_adapter_weights_only",
            "custom_sharded_layers",
            "low_cpu_ram",
            "collate_fn",
            "quantizer",
            "base_model_path",
            "tensor_parallel_dim",
            "tensor_parallel_plan",
            "data_parallel_shard_dim",
            "data_parallel_replicate_dim"});
  r.finish();
}

// OmegaConf's "${batch}" as the value that it names.
Document interpolated(Document d) {
  const Json whole = d.value;
  const auto resolve = [&](Json& value, auto&& self) -> void {
    if (value.is_object())
      for (Json& inside : value) self(inside, self);
    if (!value.is_string()) return;
    const std::string text = value.get<std::string>();
    if (!text.starts_with("${") || text.find('}') != text.size() - 1) return;
    const Json* at = &whole;
    for (const std::string& key : split_at(text.substr(2, text.size() - 3), '.')) {
      if (!at->is_object() || !at->contains(key)) return;
      at = &(*at)[key];
    }
    if (at->is_primitive()) value = *at;
  };
  resolve(d.value, resolve);
  return d;
}

bool is_recipe(const Json& value) {
  if (!value.is_object() || !value.contains("model")) return false;
  const Json& model = value["model"];
  return model.is_object() && model.contains("_component_") && model["_component_"].is_string();
}

Evidence evidence_of_torchtune(const Document& d) {
  if (d.kind == Document::Kind::command) return d.value["launcher"] == "tune" ? Evidence{"tune"} : Evidence{};
  return is_recipe(d.value) ? Evidence{"model._component_"} : Evidence{};
}

void read_torchtune(Reader& r) {
  const bool command = r.document.kind == Document::Kind::command;
  if (command) read_launch(r);
  const Document settings = interpolated(command ? settings_of(r, {"config"}) : r.document);
  if (!is_recipe(settings.value))
    throw Error(fmt::format("[{}] the recipe's file is not here", r.document.name), "`tune cp` writes it: name that file after --config");
  Reader inner(r.job, settings);
  read_settings(inner, program_of(r.document).find("distributed") != std::string::npos);
}

Encoded encode_precision(const EncodeRequest& w) {
  if (w.job.autocast || (w.job.precision != Precision::bf16 && w.job.precision != Precision::fp32))
    return {{}, "torchtune trains everything in one type: bf16 or fp32"};
  return {{{"dtype", w.job.precision == Precision::bf16 ? "bf16" : "fp32"}}, ""};
}

Encoded encode_checkpoints(const EncodeRequest& w) { return encode_plain_checkpointing(w, "enable_activation_checkpointing"); }

Encoded encode_offload(const EncodeRequest& w) {
  if (w.job.offload_activations == Offload::pageable) return {};
  return {{{"enable_activation_offloading", w.job.offload_activations == Offload::pinned}}, ""};
}

// By its class, as the recipe instantiates it.
Encoded encode_optimizer(const EncodeRequest& w) {
  static const std::vector<std::string> kTorch{"AdamW", "Adam", "SGD", "Adagrad", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam"};
  const std::string& name = w.job.optimizer.name;
  const bool torch = std::find(kTorch.begin(), kTorch.end(), name) != kTorch.end(), torchao = name.starts_with("torchao.");
  const bool bits = name.ends_with("8bit") || name.ends_with("32bit");
  if ((!torch && !torchao && !bits) || w.job.offload_optimizer) return {};
  Encoded encoded;
  const std::string component = torch ? "torch.optim." + name : torchao ? "torchao.optim." + name.substr(8) : "bitsandbytes.optim." + name;
  if (!w.has("optimizer._component_") || *w.find("optimizer._component_") != component)
    encoded.keys.push_back({"optimizer._component_", component});
  for (const char* key : {"fused", "foreach", "momentum", "nesterov", "amsgrad"}) {
    const Json value = w.job.optimizer.args.values().value(key, Json());
    const std::string path = std::string("optimizer.") + key;
    if (!value.is_null() || w.find(path)) encoded.keys.push_back({path, value.is_null() ? Json(Json::value_t::discarded) : value});
  }
  return encoded;
}

Encoded encode_loss(const EncodeRequest& w) {
  const LossKernel kernel = w.job.loss_settings.kernel;
  if (kernel == LossKernel::chunked) return {{{"loss._component_", "torchtune.modules.loss.LinearCrossEntropyLoss"}}, ""};
  if (kernel == LossKernel::chunked_output) return {{{"loss._component_", "torchtune.modules.loss.CEWithChunkedOutputLoss"}}, ""};
  return {};
}

Encoded encode_lora(const EncodeRequest& w) {
  const std::optional<AdapterSettings>& a = w.job.tuning.adapter;
  if (!a || !w.before.tuning.adapter || a->kind != AdapterKind::lora)
    return {{}, "torchtune's adapters are another builder and recipe: start from one of its lora recipes (tune ls)"};
  return {{{"model.lora_rank", a->r}, {"model.lora_alpha", plain_number(a->alpha)}, {"model.lora_dropout", plain_number(a->dropout)}}, ""};
}

Encoded no_quantization(const EncodeRequest&) {
  return {{}, "torchtune's nf4 base is another builder: start from one of its qlora recipes (tune ls)"};
}

const SettingsEncoder& writes_torchtune() {
  static const SettingsEncoder kWrites{{{"batch", "batch_size"},
                                        {"accumulation", "gradient_accumulation_steps"},
                                        {"seq", "tokenizer.max_seq_len"},
                                        {"precision", "dtype", encode_precision},
                                        {"autocast", "dtype", encode_precision},
                                        {"checkpointing", "enable_activation_checkpointing", encode_checkpoints},
                                        {"offload_activations", "enable_activation_offloading", encode_offload},
                                        {"optimizer", "optimizer._component_", encode_optimizer},
                                        {"optimizer_args", "optimizer.fused", encode_optimizer},
                                        {"optimizer_in_backward", "optimizer_in_bwd"},
                                        {"clip", "clip_grad_norm"},
                                        {"compile", "compile"},
                                        {"lora", "model.lora_rank", encode_lora},
                                        {"quantization", "model._component_", no_quantization},
                                        {"loss_kernel", "loss._component_", encode_loss},
                                        {"loss_chunks", "loss.num_output_chunks"},
                                        {"eval_batch", "batch_size_val"}},
                                       FlagStyle::words};
  return kWrites;
}

}  // namespace

const Format& torchtune_format() {
  static const Format kFormat{
      "torchtune", "torchtune's recipe or tune command", Rank::trainer, evidence_of_torchtune, read_torchtune, nullptr, writes_torchtune};
  return kFormat;
}

}  // namespace plimsoll
