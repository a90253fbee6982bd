// LLaMA-Factory's YAML or JSON, and `llamafactory-cli train config.yaml key=value`. It runs transformers' Trainer with choices of its own:
// trained weights in fp32, checkpoints on unless they are disabled. Its src/llamafactory/hparams and model (August 2026).
#include <fmt/format.h>

#include <algorithm>

#include "formats/format.h"
#include "formats/launch.h"
#include "formats/objectives.h"
#include "formats/trainer.h"
#include "job/packed_storage.h"
#include "job/quantization_kind.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kTrainer = "LLaMA-Factory";

// model/adapter.py, init_adapter: what is trained goes to fp32 unless pure_bf16
void read_precision(Reader& r, bool adapter) {
  const bool pure = r.flag("pure_bf16", false), bf16 = r.flag("bf16", false), fp16 = r.flag("fp16", false);
  if (bf16 && fp16)
    r.finding(Effect::refused, "fp16", "bf16 is on too: bf16 is simulated", "TrainingArguments raises a ValueError when both are true");
  const std::string autocast = pure ? "" : bf16 ? "bf16" : fp16 ? "fp16" : "";
  const std::string base = pure || bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
  const char* path = pure ? "pure_bf16" : bf16 ? "bf16" : "fp16";
  const std::string origin = pure || bf16 || fp16 ? r.origin(path) : "default of LLaMA-Factory";
  if (pure && (bf16 || fp16))
    r.finding(Effect::other, bf16 ? "bf16" : "fp16", "pure_bf16 keeps all in bf16", "the weights that are trained are not made fp32");
  if (adapter && autocast.empty() && !pure) return set_types_of_checkpoint(r, "", origin);  // patcher.py, infer_optim_dtype
  set_types(r, adapter || pure ? base : "fp32", autocast, origin);
  if (!adapter && !pure && (bf16 || fp16))
    r.finding(Effect::note, path, "the trained weights are in fp32, and autocast runs over them: 4 bytes a weight, not 2",
              "pure_bf16: true keeps them in bf16");
}

void read_adapter(Reader& r, const std::string& type) {
  if (type == "full") {
    for (const char* key : {"lora_rank", "lora_target"})
      r.finding(Effect::none, key, "no adapter is made: the whole model is trained", "finetuning_type is full");
    return r.ignore({"lora_alpha", "lora_dropout", "additional_target", "use_dora", "use_rslora"});
  }
  if (type == "freeze") {
    r.note(Effect::unknown,
           fmt::format("freeze tuning trains the last {} layers: the whole model is trained in the answer; name them with --trainable",
                       r.integer("freeze_trainable_layers", 2)));
    return r.ignore({"freeze_trainable_modules", "freeze_extra_modules", "use_llama_pro"});
  }
  if (type != "lora")
    return r.finding(Effect::unknown, "finetuning_type", "this kind is not modelled: the whole model is trained in the answer");
  const int64_t rank = r.integer("lora_rank", 8);
  Json lora{{"r", rank},
            {"lora_alpha", r.number("lora_alpha", 2.0 * static_cast<double>(rank))},
            {"lora_dropout", r.number("lora_dropout", 0.0)}};
  const Json* target = r.find("lora_target");
  const Json names = target ? names_of(*target) : Json("all");
  lora["target_modules"] = names == "all" || names == Json::array({"all"}) ? Json("all-linear") : names;
  if (const Json* saved = r.find("additional_target")) lora["modules_to_save"] = names_of(*saved);
  if (r.flag("use_dora", false)) lora["use_dora"] = true;
  if (r.flag("pure_bf16", false)) lora["autocast_adapter_dtype"] = false;
  r.set("lora", lora, r.has("lora_rank") ? "lora_rank" : "finetuning_type");
  r.ignore({"use_rslora", "loraplus_lr_ratio", "loraplus_lr_embedding", "pissa_init", "pissa_iter", "pissa_convert", "create_new_adapter"});
}

void read_quantization(Reader& r, const std::string& type) {
  const std::string method = lower(r.text("quantization_method", "bnb")), kind = r.text("quantization_type", "nf4");
  const bool nested = r.flag("double_quantization", true);
  r.ignore({"quantization_device_map"});
  if (!r.has("quantization_bit")) return;
  const int64_t bits = r.integer("quantization_bit", 4);
  if (type != "lora")
    return r.finding(Effect::refused, "quantization_bit", "only LoRA trains a quantised model",
                     "Quantization is only compatible with the LoRA or OFT method");
  if (method != "bnb" && method != "bitsandbytes")
    return r.finding(Effect::unknown, "quantization_method", "only bitsandbytes is simulated: nothing is quantised in the answer");
  if (bits != 4 && bits != 8)
    return r.finding(Effect::refused, "quantization_bit", "bitsandbytes has 4 and 8 bit: nothing is quantised in the answer",
                     "Bitsandbytes only accepts 4-bit or 8-bit quantization");
  const bool checkpoints = r.job.origin["precision"].ends_with(kCheckpointsType);  // as good as always bf16
  const std::string compute = r.job.precision == Precision::bf16 || checkpoints ? "bf16"
                              : r.job.precision == Precision::fp16              ? "fp16"
                                                                                : "fp32";
  if (bits == 8) return r.set("quantization", {{"type", "int8"}, {"prepare", false}}, "quantization_bit");
  r.set("quantization", {{"type", kind}, {"double_quant", nested}, {"compute_dtype", compute}, {"prepare", false}}, "quantization_bit");
}

void read_checkpointing(Reader& r) {
  const bool off = r.flag("disable_gradient_checkpointing", false), reentrant = r.flag("use_reentrant_gc", true);
  const Json value = off ? Json(false) : reentrant ? Json{{"reentrant", true}} : Json(true);
  if (r.has("disable_gradient_checkpointing"))
    r.set("checkpointing", value, "disable_gradient_checkpointing");
  else
    r.set_default("checkpointing", value, kTrainer);
  if (!off && r.has("gradient_checkpointing") && !r.flag("gradient_checkpointing", true))
    r.finding(Effect::none, "gradient_checkpointing", "blocks are checkpointed all the same",
              "LLaMA-Factory turns it on itself; disable_gradient_checkpointing: true turns it off");
  if (off && r.flag("gradient_checkpointing", false)) r.set("checkpointing", true, "gradient_checkpointing");
  r.ignore({"gradient_checkpointing", "gradient_checkpointing_kwargs"});
  if (!off && r.flag("use_unsloth_gc", false)) r.set("offload_activations", "pageable", "use_unsloth_gc");
}

// train/trainer_utils.py, _create_galore_optimizer and _create_apollo_optimizer: "all" are the linear layers but for the head.
void read_low_rank_keys(Reader& r, const std::string& kind, const char* optimizer,
                        std::initializer_list<std::pair<const char*, const char*>> keys) {
  const std::string use = "use_" + kind, target = r.text(kind + "_target", "all");
  Json args{{"rank", r.integer(kind + "_rank", 16)}};
  args["target_modules"] = target == "all" ? Json("(?!.*lm_head).*") : Json(split_at(target, ','));
  for (const auto& [theirs, ours] : keys)
    if (r.has(theirs)) args[ours] = r.text(theirs);
  const bool layerwise = r.flag(kind + "_layerwise", false);
  if (!r.flag(use, false)) return;
  r.set("optimizer", optimizer, use);
  r.set("optimizer_args", args, use);
  if (layerwise) r.set("optimizer_in_backward", true, kind + "_layerwise");
  if (const std::string optim = r.text("optim", "adamw_torch"); optim != "adamw_torch" && optim != "adamw_torch_fused")
    r.finding(Effect::unknown, "optim", fmt::format("simulated as {}", optimizer));
}

void read_optimizer(Reader& r) {
  const Json* args = r.find("optim_args");
  if (r.has("optim")) {
    set_hf_optimizer(r, r.text("optim"), args ? *args : Json(), "optim");
  } else {
    r.set_default("optimizer", "AdamW", kTrainer);
    r.set_default("optimizer_args", {{"fused", true}}, kTrainer);
  }
  if (r.flag("use_muon", false)) set_optimizer(r, "Muon+AdamW", Json(), "use_muon");
  read_low_rank_keys(r, "galore", "GaLoreAdamW", {{"galore_proj_type", "proj_type"}});
  read_low_rank_keys(r, "apollo", "APOLLOAdamW",
                     {{"apollo_proj", "proj"}, {"apollo_proj_type", "proj_type"}, {"apollo_scale_type", "scale_type"}});
  for (const char* key : {"use_badam", "use_adam_mini"})
    if (r.flag(key, false)) r.finding(Effect::unknown, key, "not modelled: the answer is for the optimizer of optim");
  r.ignore({"galore_update_interval", "galore_scale", "apollo_update_interval", "apollo_scale", "apollo_scale_front", "badam_mode",
            "badam_switch_mode", "badam_switch_interval", "badam_update_ratio"});
}

void read_attention(Reader& r) {
  const std::string name = lower(r.text("flash_attn", "auto"));
  if (name == "fa2" || name == "true") return r.set("attention", "flash-attention-2", "flash_attn");
  if (name == "disabled" || name == "false" || name == "off") return r.set("attention", "eager", "flash_attn");
  if (name == "fa3") return set_attention(r, "flash_attention_3", "flash_attn");
  if (name == "sdpa") r.set("attention", "auto", "flash_attn");
}

void ignore_rest(Reader& r) {
  r.ignore({"template",
            "dataset",
            "eval_dataset",
            "dataset_dir",
            "media_dir",
            "max_samples",
            "overwrite_cache",
            "preprocessing_num_workers",
            "preprocessing_batch_size",
            "train_on_prompt",
            "mask_history",
            "streaming",
            "buffer_size",
            "mix_strategy",
            "interleave_probs",
            "ignore_pad_token_for_loss",
            "eval_on_each_dataset",
            "tool_format",
            "default_system",
            "enable_thinking",
            "tokenized_path",
            "data_shared_file_system",
            "eval_num_beams",
            "val_size",
            "adapter_name_or_path",
            "model_revision",
            "resize_vocab",
            "split_special_tokens",
            "add_tokens",
            "add_special_tokens",
            "low_cpu_mem_usage",
            "infer_backend",
            "offload_folder",
            "use_kv_cache",
            "infer_dtype",
            "hf_hub_token",
            "ms_hub_token",
            "om_hub_token",
            "print_param_status",
            "compute_accuracy",
            "disable_shuffling",
            "early_stopping_steps",
            "include_effective_tokens_per_second",
            "use_swanlab",
            "swanlab_project",
            "swanlab_run_name",
            "swanlab_mode",
            "ray_run_name",
            "ray_num_workers",
            "ray_storage_path",
            "resources_per_worker",
            "placement_strategy",
            "predict_with_generate",
            "image_max_pixels",
            "image_min_pixels",
            "video_max_pixels",
            "video_min_pixels",
            "video_fps",
            "video_maxlen",
            "freeze_vision_tower",
            "freeze_multi_modal_projector",
            "freeze_language_model",
            "upcast_lmhead_output",
            "rope_scaling",
            "moe_aux_loss_coef"});
}

void read_settings(Reader& r) {
  r.job.trainer = kTrainer;
  set_model(r, "model_name_or_path");
  const std::string type = lower(r.text("finetuning_type", "lora")), stage = lower(r.text("stage", "sft"));
  if (!r.set("batch", "per_device_train_batch_size") && !r.has("per_gpu_train_batch_size")) r.set_default("batch", 8, kTrainer);
  if (!r.set("seq", "cutoff_len")) r.set_default("seq", 2048, kTrainer);
  read_attention(r);
  read_shared_arguments(r, kTrainer);
  read_precision(r, type == "lora");
  read_checkpointing(r);
  read_adapter(r, type);
  read_quantization(r, type);
  read_optimizer(r);
  if (r.flag("enable_liger_kernel", false)) {
    r.set("liger_kernels", "all", "enable_liger_kernel");
    if (stage == "sft" || stage == "pt") r.set("loss_kernel", "liger", "enable_liger_kernel");
  }
  if (r.flag("neat_packing", false))
    r.finding(Effect::note, "neat_packing", "rows of cutoff_len tokens, simulated without the mask that tells samples apart");
  else if (!r.flag("packing", stage == "pt"))
    r.note(Effect::note, "samples shorter than cutoff_len make smaller batches: the answer is for the longest");
  if (r.flag("upcast_layernorm", false)) r.finding(Effect::unknown, "upcast_layernorm", "norms in fp32 are not simulated");
  if (r.flag("use_unsloth", false))
    r.finding(Effect::unknown, "use_unsloth", "unsloth's own layers are not modelled: transformers' are simulated");
  const std::string preference = lower(r.text("pref_loss", "sigmoid"));
  const bool alone = preference == "orpo" || preference == "simpo";  // workflow.py of dpo: no reference model for these
  note_objective(r, {.name = stage == "dpo" && alone ? preference : stage,
                     .adapter = type == "lora" && !r.has("ref_model"),
                     .reward = r.has("reward_model") && stage == "ppo"});
  for (const char* key : {"use_kt", "use_mca", "use_megatron_bridge", "use_hyper_parallel", "fp8", "shift_attn"})
    if (r.flag(key, false)) r.finding(Effect::unknown, key, "not simulated");

  const bool evaluates = r.number("val_size", 0) > 0 || r.has("eval_dataset");
  const bool asked = lower(r.text("eval_strategy", r.text("evaluation_strategy", "no"))) != "no" || r.flag("do_eval", false);
  r.has("per_device_eval_batch_size");
  if (asked && !evaluates)
    r.finding(Effect::refused, r.has("eval_strategy") ? "eval_strategy" : "do_eval", "there is nothing to evaluate",
              "LLaMA-Factory wants eval_dataset or val_size");
  if (asked && evaluates && !r.set("eval_batch", "per_device_eval_batch_size")) r.set_default("eval_batch", 8, kTrainer);
  read_dataloader(r, kTrainer);
  read_ddp(r, /*find_unused=*/type != "lora" && !r.job.checkpointing.on);
  read_deepspeed_setting(r, "deepspeed");
  ignore_rest(r);
  r.finish();
}

Evidence evidence_of_llama_factory(const Document& d) {
  if (d.kind == Document::Kind::command) {
    const std::string program = program_of(d);
    if (program == "llamafactory-cli" || program == "lmf" || program.starts_with("llamafactory.")) return {program};
    Evidence flags = keys_there(d, {"stage", "finetuning_type"});
    return flags.size() == 2 ? flags : Evidence{};
  }
  if (!d.value.is_object() || d.kind == Document::Kind::toml) return {};
  Evidence keys = keys_there(d, {"finetuning_type", "cutoff_len", "model_name_or_path"});
  return d.value.contains("finetuning_type") || keys.size() == 2 ? keys : Evidence{};
}

void read_llama_factory(Reader& r) {
  if (r.document.kind != Document::Kind::command) return read_settings(r);
  read_launch(r);
  // launcher.py: torchrun on every device that it sees, or as FORCE_TORCHRUN, NPROC_PER_NODE and NNODES say
  const bool own = program_of(r.document) == "llamafactory-cli" || program_of(r.document) == "lmf";
  if (r.text("launcher").empty() && own) {
    const int64_t devices = std::max<int64_t>(visible_devices(r).value_or(1), 1);
    const bool forced = r.flag("/environment/FORCE_TORCHRUN", false);
    if (forced || devices > 1)
      set_world(r, r.integer("/environment/NPROC_PER_NODE", devices), r.integer("/environment/NNODES", 1),
                r.document.name + (r.has("/environment/NPROC_PER_NODE") ? ": NPROC_PER_NODE" : ": CUDA_VISIBLE_DEVICES"));
  }
  const Document settings = settings_of(r, {"config"});
  Reader inner(r.job, settings);
  read_settings(inner);
}

// The base of an adapter is in the type of autocast; a whole model is trained in fp32 under it.
Encoded encode_precision(const EncodeRequest& w) {
  const Precision p = w.job.precision;
  const bool adapter = w.job.tuning.adapter.has_value(), pure = p == Precision::bf16 && !w.job.autocast;
  const bool bf16 = adapter ? p == Precision::bf16 && w.job.autocast : p == Precision::amp;
  const bool fp16 = adapter ? p == Precision::fp16 : p == Precision::amp_fp16;
  if (!pure && !bf16 && !fp16 && p != Precision::fp32)
    return {{},
            adapter ? "with finetuning_type lora the base is loaded in the type of bf16 or fp16"
                    : "a whole model is trained in fp32 or, with pure_bf16, in bf16"};
  Encoded encoded;
  for (const auto& [key, on] : {std::pair{"pure_bf16", pure}, {"bf16", bf16}, {"fp16", fp16}})
    if (on || w.find(key)) encoded.keys.push_back({key, on});
  if (encoded.keys.empty()) encoded.keys.push_back({"bf16", false});
  return encoded;
}

Encoded encode_own_checkpointing(const EncodeRequest& w) {
  const Checkpointing& c = w.job.checkpointing;
  if (c.on && (c.every > 1 || !c.modules.empty() || !c.save.empty())) return {};
  Encoded encoded{{{"disable_gradient_checkpointing", !c.on}}, ""};
  if (c.on && (!c.reentrant || w.find("use_reentrant_gc"))) encoded.keys.push_back({"use_reentrant_gc", c.reentrant});
  if (!c.on && w.is("gradient_checkpointing")) encoded.keys.push_back({"gradient_checkpointing", false});
  return encoded;
}

Encoded encode_lora(const EncodeRequest& w) {
  const std::optional<AdapterSettings>& a = w.job.tuning.adapter;
  if (!a) return {{{"finetuning_type", "full"}}, ""};
  Encoded encoded{{{"finetuning_type", "lora"}, {"lora_rank", a->r}, {"lora_alpha", plain_number(a->alpha)}}, ""};
  if (a->dropout > 0 || w.has("lora_dropout")) encoded.keys.push_back({"lora_dropout", plain_number(a->dropout)});
  if (!a->target_modules.empty())
    encoded.keys.push_back({"lora_target", a->target_modules.all_linear ? Json("all") : Json(join(a->target_modules.names, ","))});
  if (!a->modules_to_save.empty()) encoded.keys.push_back({"additional_target", join(a->modules_to_save, ",")});
  if (a->use_dora || w.has("use_dora")) encoded.keys.push_back({"use_dora", a->use_dora});
  return encoded;
}

Encoded encode_quantization(const EncodeRequest& w) {
  const std::optional<QuantizationSettings>& q = w.job.tuning.quantization;
  if (!q) return {{{"quantization_bit", Json()}}, ""};
  if (!is_bitsandbytes(*q) || packed_storage(*q)) return {};
  Encoded encoded{{{"quantization_bit", q->bits()}}, ""};
  if (q->bits() == 4 && (q->type != "nf4" || w.find("quantization_type"))) encoded.keys.push_back({"quantization_type", q->type});
  if (q->bits() == 4 && (!q->double_quant || w.find("double_quantization")))
    encoded.keys.push_back({"double_quantization", q->double_quant});
  return encoded;
}

Encoded encode_attention(const EncodeRequest& w) {
  const AttentionKernel a = w.job.attention;
  if (a == AttentionKernel::flash_attention_2) return {{{"flash_attn", "fa2"}}, ""};
  if (a == AttentionKernel::eager) return {{{"flash_attn", "disabled"}}, ""};
  if (a == AttentionKernel::automatic) return {{{"flash_attn", "sdpa"}}, ""};
  return {};
}

Encoded encode_optimizer(const EncodeRequest& w) { return encode_hf_optimizer(w, "optim"); }

Encoded encode_liger(const EncodeRequest& w) {
  const LossKernel kernel = w.job.loss_settings.kernel;
  if (kernel != LossKernel::liger && kernel != LossKernel::model) return {};
  return {{{"enable_liger_kernel", kernel == LossKernel::liger || w.job.loss_settings.liger.any()}}, ""};
}

Encoded encode_offload(const EncodeRequest& w) {
  if (w.job.offload_activations == Offload::pinned) return {};
  return {{{"use_unsloth_gc", w.job.offload_activations == Offload::pageable}}, ""};
}

const SettingsEncoder& writes_llama_factory() {
  static const SettingsEncoder kWrites = [] {
    SettingsEncoder w{{{"batch", "per_device_train_batch_size"},
                       {"accumulation", "gradient_accumulation_steps"},
                       {"seq", "cutoff_len"},
                       {"precision", "bf16", encode_precision},
                       {"autocast", "bf16", encode_precision},
                       {"checkpointing", "disable_gradient_checkpointing", encode_own_checkpointing},
                       {"offload_activations", "use_unsloth_gc", encode_offload},
                       {"optimizer", "optim", encode_optimizer},
                       {"optimizer_args", "optim", encode_optimizer},
                       {"clip", "max_grad_norm"},
                       {"compile", "torch_compile"},
                       {"lora", "finetuning_type", encode_lora},
                       {"quantization", "quantization_bit", encode_quantization},
                       {"attention", "flash_attn", encode_attention},
                       {"loss_kernel", "enable_liger_kernel", encode_liger},
                       {"liger_kernels", "enable_liger_kernel", encode_liger},
                       {"eval_batch", "per_device_eval_batch_size"},
                       {"ddp", "ddp_find_unused_parameters", encode_hf_ddp}},
                      FlagStyle::words};
    for (const KeyEncoder& k : dataloader_keys()) w.keys.push_back(k);
    return w;
  }();
  return kWrites;
}

}  // namespace

const Format& llama_factory_format() {
  static const Format kFormat{
      "llama_factory",     "LLaMA-Factory's YAML, JSON or command", Rank::trainer, evidence_of_llama_factory, read_llama_factory, nullptr,
      writes_llama_factory};
  return kFormat;
}

}  // namespace plimsoll
