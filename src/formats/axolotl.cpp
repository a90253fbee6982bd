// axolotl's YAML, and commands `axolotl train config.yml --micro-batch-size 2` or `accelerate launch -m axolotl.cli.train config.yml`.
// It runs transformers' Trainer. Defaults and rules: axolotl, utils/schemas and utils/config (July 2026).
#include <fmt/format.h>

#include <algorithm>

#include "formats/format.h"
#include "formats/fsdp_keys.h"
#include "formats/launch.h"
#include "formats/objectives.h"
#include "formats/readers.h"
#include "formats/trainer.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr const char* kTrainer = "axolotl";

// utils/config, normalize_config and schemas/validation
void read_batch(Reader& r) {
  if (!r.set("batch", "micro_batch_size")) r.set_default("batch", 1, kTrainer);
  if (!r.has("batch_size")) return;
  const int64_t all = r.integer("batch_size", 1);
  if (r.has("gradient_accumulation_steps") && r.has("micro_batch_size")) {
    r.finding(Effect::refused, "batch_size", "micro_batch_size and gradient_accumulation_steps say it already",
              "axolotl: set only one of gradient_accumulation_steps or batch_size");
    const double product = static_cast<double>(r.job.batch) * r.number("gradient_accumulation_steps", 1);
    if (static_cast<double>(all) != product)
      r.finding(Effect::conflict, "batch_size", fmt::format("it is not their product, {:.0f}", product));
  } else if (all >= r.job.batch) {
    r.set("accumulation", all / r.job.batch, "batch_size");
    if (all % r.job.batch != 0)
      r.finding(Effect::other, "batch_size",
                fmt::format("{} a device x {} steps = {} are trained", r.job.batch, all / r.job.batch, all / r.job.batch * r.job.batch),
                "the division is cut off");
  }
}

// utils/config, resolve_dtype
void read_precision(Reader& r) {
  const Json* given = r.find("bf16");
  const bool full = given && *given == "full", automatic = given && *given == "auto";
  const bool fp16 = r.flag("fp16", false), bfloat16 = r.flag("bfloat16", false), float16 = r.flag("float16", false);
  const bool bf16 = full || (automatic && !fp16) || (!full && r.flag("bf16", !given && !fp16 && !float16 && !r.flag("float32", false)));
  if (bf16 && fp16) r.finding(Effect::none, "fp16", "bf16 is used", "axolotl turns fp16 off when bf16 is on");
  const std::string origin = given ? r.origin("bf16") : fp16 ? r.origin("fp16") : bfloat16 ? r.origin("bfloat16") : "default of axolotl";
  if (bf16 || bfloat16) return set_types(r, "bf16", full ? "" : "bf16", origin);
  if (fp16 || float16) return set_types(r, "fp16", fp16 ? "fp16" : "", origin);
  set_types(r, r.flag("load_in_8bit", false) ? "fp16" : "fp32", "", origin);
}

void read_adapter(Reader& r) {
  const std::string adapter = lower(r.text("adapter"));
  r.ignore({"lora_fan_in_fan_out", "lora_alpha_pattern", "peft_use_rslora", "peft_init_lora_weights", "loraplus_lr_ratio",
            "loraplus_lr_embedding", "lora_on_cpu", "merge_lora", "merge_method", "lora_model_dir", "qlora_sharded_model_loading"});
  if (adapter.empty()) {
    for (const char* key : {"lora_r", "lora_target_modules", "lora_target_linear"})
      r.finding(Effect::none, key, "no adapter is made: the whole model is trained", "adapter is not set");
    return r.ignore({"lora_alpha", "lora_dropout", "lora_modules_to_save", "peft_use_dora"});
  }
  if (adapter != "lora" && adapter != "qlora")
    return r.finding(Effect::unknown, "adapter", "this adapter is not known: the whole model is trained in the answer");
  Json lora{{"r", r.integer("lora_r", 8)}, {"lora_dropout", r.number("lora_dropout", 0.0)}};
  lora["lora_alpha"] = r.number("lora_alpha", 8);
  if (const Json* targets = r.find("lora_target_modules"))
    lora["target_modules"] = *targets == "all-linear" ? *targets : names_of(*targets);
  if (r.flag("lora_target_linear", false)) {
    if (lora.contains("target_modules"))
      r.finding(Effect::other, "lora_target_linear", "lora_target_modules is a part of it: all linear layers get adapters");
    lora["target_modules"] = "all-linear";
  }
  if (const Json* saved = r.find("lora_modules_to_save")) lora["modules_to_save"] = names_of(*saved);
  if (const Json* ranks = r.find("lora_rank_pattern")) lora["rank_pattern"] = *ranks;
  if (const Json* layers = r.find("peft_layers_to_transform")) lora["layers_to_transform"] = *layers;
  if (const Json* pattern = r.find("peft_layers_pattern")) lora["layers_pattern"] = *pattern;
  if (r.flag("peft_use_dora", false)) lora["use_dora"] = true;
  if (!r.flag("peft_autocast_adapter_dtype", true)) lora["autocast_adapter_dtype"] = false;
  r.set("lora", lora, "adapter");
  for (const char* key : {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"})
    if (r.flag(key, false))
      r.finding(Effect::unknown, key, "axolotl's own kernels keep other tensors than PEFT's layers, which are simulated");
}

// loaders/model.py: norms and embeddings go back to the base's type after prepare_model_for_kbit_training
void read_quantization(Reader& r) {
  const std::string adapter = lower(r.text("adapter"));
  const bool four = r.flag("load_in_4bit", false), eight = r.flag("load_in_8bit", false);
  const std::string compute = r.job.precision == Precision::bf16 ? "bf16" : r.job.precision == Precision::fp16 ? "fp16" : "fp32";
  r.ignore({"embeddings_skip_upcast"});
  if (adapter == "qlora" && !four)
    r.finding(Effect::refused, "adapter", "load_in_4bit is not true: nothing is quantised in the answer",
              "axolotl requires load_in_4bit for qlora");
  if (adapter == "qlora" && eight)
    r.finding(Effect::refused, "load_in_8bit", "qlora loads in 4 bit", "axolotl refuses load_in_8bit for qlora");
  if (adapter == "qlora" && four) {
    Json bits{{"type", r.text("bnb_config_kwargs.bnb_4bit_quant_type", "nf4")},
              {"double_quant", r.flag("bnb_config_kwargs.bnb_4bit_use_double_quant", true)},
              {"compute_dtype", compute},
              {"prepare", false}};
    r.set("quantization", bits, "load_in_4bit");
  } else if (adapter == "lora" && eight) {
    r.set("quantization", {{"type", "int8"}, {"prepare", false}}, "load_in_8bit");
  } else if (adapter == "lora" && four) {
    r.finding(Effect::refused, "load_in_4bit", "adapter lora loads in 8 bit or not at all: nothing is quantised in the answer",
              "use adapter: qlora");
  } else if (adapter.empty() && (four || eight)) {
    r.finding(Effect::refused, four ? "load_in_4bit" : "load_in_8bit", "quantised weights cannot be trained without an adapter");
  }
  r.ignore({"bnb_config_kwargs"});
}

void read_checkpointing(Reader& r) {
  const Json* given = r.find("gradient_checkpointing");
  const std::string word = given && given->is_string() ? lower(given->get<std::string>()) : "";
  const bool offload = word == "offload" || word == "offload_disk", on = offload || r.flag("gradient_checkpointing", false);
  const bool plain = !r.has("unfrozen_parameters") && !r.has("rl");
  const bool reentrant = r.flag("gradient_checkpointing_kwargs.use_reentrant", plain);
  r.ignore({"gradient_checkpointing_kwargs"});
  if (given) r.set("checkpointing", on && reentrant ? Json{{"reentrant", true}} : Json(on), "gradient_checkpointing");
  if (offload) r.set("offload_activations", "pageable", "gradient_checkpointing");
  const Json* host = r.find("activation_offloading");
  if (host && *host != false) {
    r.set("offload_activations", "pinned", "activation_offloading");
    r.finding(Effect::partial, "activation_offloading", "simulated as save_on_cpu; axolotl keeps small and the last tensors on the device");
    if (*host != "hidden_states" && on && lower(r.text("adapter")).find("lora") != std::string::npos) {
      r.set("checkpointing", false, "activation_offloading");
      r.finding(Effect::none, "gradient_checkpointing", "nothing is run again in backward", "activation_offloading takes its place");
    }
  }
  if (r.has("selective_checkpointing") && *r.find("selective_checkpointing") != false)
    r.finding(Effect::unknown, "selective_checkpointing", "which results are kept is not simulated: all are made again");
  if (r.flag("layer_offloading", false)) r.finding(Effect::unknown, "layer_offloading", "not simulated: all layers are on the device");
}

void read_attention(Reader& r) {
  if (r.has("attn_implementation")) return set_attention(r, r.text("attn_implementation"), "attn_implementation");
  if (r.flag("flash_attention", false)) return r.set("attention", "flash-attention-2", "flash_attention");
  if (r.flag("eager_attention", false)) return r.set("attention", "eager", "eager_attention");
  if (r.flag("sdp_attention", false)) return r.set("attention", "auto", "sdp_attention");
  for (const char* key : {"xformers_attention", "flex_attention", "sage_attention"})
    if (r.flag(key, false))
      r.finding(Effect::unknown, key, "this attention is not modelled: PyTorch's scaled_dot_product_attention is simulated");
}

// core/builders/causal.py: packed samples are one row where the attention tells them apart
void read_rows(Reader& r) {
  if (!r.set("seq", "sequence_len")) r.set_default("seq", 512, kTrainer);
  const bool packing = r.flag("sample_packing", false);
  const bool flat = r.job.attention == AttentionKernel::flash_attention_2 && !r.flag("multipack_real_batches", false);
  r.flag("multipack_real_batches", false);
  if (packing && flat) set_packed(r, r.job.batch, r.job.seq, "sample_packing");
  if (packing && !flat)
    r.finding(Effect::note, "sample_packing", "rows of sequence_len tokens, simulated without the mask that tells samples apart");
  if (!packing && !r.flag("pad_to_sequence_len", false))
    r.note(Effect::note, "samples shorter than sequence_len make smaller batches: the answer is for the longest");
  r.ignore({"pad_to_sequence_len", "eval_sequence_len", "min_sample_len", "sample_packing_group_size", "sample_packing_bin_size",
            "sample_packing_sequentially", "sample_packing_mp_start_method", "sample_packing_eff_est", "eval_sample_packing",
            "excess_length_strategy", "batch_flattening", "curriculum_sampling"});
  r.set("pad_to_multiple_of", "pad_to_multiple_of");
}

void read_optimizer(Reader& r) {
  static const std::vector<std::pair<const char*, const char*>> kOwn{{"ao_adamw_4bit", "torchao.AdamW4bit"},
                                                                     {"ao_adamw_8bit", "torchao.AdamW8bit"},
                                                                     {"ao_adamw_fp8", "torchao.AdamWFp8"},
                                                                     {"muon", "Muon+AdamW"},
                                                                     {"came_pytorch", "CAME"}};
  static const std::vector<std::string> kOther{"optimi_adamw", "adopt_adamw", "dion",       "sinkgd",     "flash_adamw",
                                               "flash_adam",   "flash_sgd",   "flash_sgdw", "flash_lion", "q_galore_adamw8bit"};
  const std::string name = r.text("optimizer");
  const Json* args = r.find("optim_args");
  if (name.empty()) {
    r.set_default("optimizer", "AdamW", kTrainer);
    r.set_default("optimizer_args", {{"fused", true}}, kTrainer);
    return;
  }
  for (const auto& [theirs, ours] : kOwn)
    if (name == theirs) return set_optimizer(r, ours, args ? *args : Json(), "optimizer");
  if (std::find(kOther.begin(), kOther.end(), name) == kOther.end()) return set_hf_optimizer(r, name, args ? *args : Json(), "optimizer");
  r.set("optimizer", name, "optimizer");
  r.finding(Effect::unknown, "optimizer", "this optimizer is not modelled: choose a near one with --optimizer, e.g. AdamW8bit");
}

void read_kernels(Reader& r) {
  bool liger_plugin = false, cut_plugin = false;
  if (const Json* plugins = r.find("plugins"); plugins && plugins->is_array())
    for (const Json& plugin : *plugins) {
      const std::string name = plugin.is_string() ? plugin.get<std::string>() : "";
      liger_plugin = liger_plugin || name.find("liger") != std::string::npos;
      cut_plugin = cut_plugin || name.find("cut_cross_entropy") != std::string::npos;
    }
  Json kernels = Json::array();
  for (const auto& [key, kernel] :
       {std::pair{"liger_rope", "rope"}, {"liger_rms_norm", "rms_norm"}, {"liger_glu_activation", "swiglu"}, {"liger_swiglu", "swiglu"}})
    if (r.flag(key, false)) {
      kernels.push_back(kernel);
      if (!liger_plugin)
        r.finding(Effect::none, key, "the model keeps its own layer", "axolotl.integrations.liger.LigerPlugin is not among the plugins");
    }
  const bool fused = r.flag("liger_fused_linear_cross_entropy", false);
  if (fused && !liger_plugin)
    r.finding(Effect::none, "liger_fused_linear_cross_entropy", "the model computes its own loss", "LigerPlugin is not among the plugins");
  r.ignore({"liger_cross_entropy", "liger_layer_norm", "liger_rms_norm_gated", "liger_use_token_scaling"});
  if (liger_plugin && !kernels.empty()) r.set("liger_kernels", kernels, "plugins");
  if (liger_plugin && fused) r.set("loss_kernel", "liger", "liger_fused_linear_cross_entropy");
  if (cut_plugin && r.flag("cut_cross_entropy", true))
    r.set("loss_kernel", "cut", r.has("cut_cross_entropy") ? "cut_cross_entropy" : "plugins");
  if (!cut_plugin && r.flag("cut_cross_entropy", false))
    r.finding(Effect::none, "cut_cross_entropy", "the model computes its own loss", "CutCrossEntropyPlugin is not among the plugins");
  if (r.flag("chunked_cross_entropy", false)) {
    r.set("loss_kernel", "chunked-output", "chunked_cross_entropy");
    r.set("loss_chunks", "chunked_cross_entropy_num_chunks");
  }
  if (r.flag("tiled_mlp", false)) r.finding(Effect::unknown, "tiled_mlp", "not simulated: the MLP runs at once");
}

void read_evaluation(Reader& r) {
  const bool on = r.number("val_set_size", 0) > 0 || r.has("test_datasets");
  r.has("eval_batch_size");
  if (!on) return r.ignore({"eval_strategy", "evals_per_epoch", "test_datasets"});
  if (!r.set("eval_batch", "eval_batch_size")) r.set_default("eval_batch", r.job.batch, kTrainer);
  r.ignore({"eval_strategy", "evals_per_epoch", "test_datasets"});
}

// A list of patterns of parameter names; those that are plain names are ours.
void read_unfrozen(Reader& r) {
  const Json* patterns = r.find("unfrozen_parameters");
  if (!patterns || !patterns->is_array() || patterns->empty()) return;
  Json names = Json::array();
  for (const Json& pattern : *patterns) {
    std::string name = pattern.is_string() ? pattern.get<std::string>() : "";
    if (name.starts_with('^')) name.erase(0, 1);
    if (name.ends_with('$')) name.pop_back();
    if (name.ends_with(".weight")) name.erase(name.size() - 7);
    const bool plain =
        !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
    if (!plain)
      return r.finding(Effect::unknown, "unfrozen_parameters", "these patterns are not followed: the whole model is trained in the answer");
    names.push_back(name);
  }
  r.set("trainable", names, "unfrozen_parameters");
}

void ignore_rest(Reader& r) {
  r.ignore({"datasets",
            "pretraining_dataset",
            "dataset_prepared_path",
            "dataset_processes",
            "dataset_num_proc",
            "dataset_keep_in_memory",
            "dataset_exact_deduplication",
            "shuffle_merged_datasets",
            "shuffle_before_merging_datasets",
            "train_on_inputs",
            "chat_template",
            "chat_template_jinja",
            "default_system_message",
            "special_tokens",
            "tokens",
            "added_tokens_overrides",
            "eot_tokens",
            "tokenizer_type",
            "tokenizer_config",
            "tokenizer_use_fast",
            "tokenizer_legacy",
            "model_type",
            "type_of_model",
            "base_model_config",
            "cls_model_config",
            "processor_type",
            "trust_remote_code",
            "strict",
            "revision_of_model",
            "is_llama_derived_model",
            "is_mistral_derived_model",
            "is_falcon_derived_model",
            "is_qwen_derived_model",
            "hf_use_auth_token",
            "push_dataset_to_hub"});
  r.ignore({"num_epochs",
            "saves_per_epoch",
            "early_stopping_patience",
            "wandb_project",
            "wandb_entity",
            "wandb_name",
            "wandb_run_id",
            "wandb_watch",
            "wandb_mode",
            "wandb_log_model",
            "use_wandb",
            "mlflow_experiment_name",
            "mlflow_tracking_uri",
            "use_mlflow",
            "use_tensorboard",
            "use_comet",
            "comet_project_name",
            "resume_from_checkpoint",
            "auto_resume_from_checkpoints",
            "loss_watchdog_threshold",
            "loss_watchdog_patience",
            "gc_steps",
            "seed",
            "lr_scheduler",
            "cosine_min_lr_ratio",
            "cosine_constant_lr_ratio",
            "dion_lr",
            "eval_table_size",
            "eval_max_new_tokens",
            "low_cpu_mem_usage",
            "device_map",
            "local_rank",
            "world_size",
            "ddp",
            "gpu_memory_limit",
            "max_memory",
            "plugins",
            "num_labels",
            "debug",
            "save_first_step",
            "include_tkps",
            "deepcompile",
            "fix_untrained_tokens",
            "resize_token_embeddings_to_32x",
            "shrink_embeddings",
            "chat_template_kwargs",
            "streaming",
            "streaming_multipack_buffer_size"});
}

// `rl: dpo`, or a reward model. core/builders: an adapter's base is the reference unless rl_adapter_ref_model asks for a copy.
void read_objective(Reader& r) {
  const bool reward = r.flag("reward_model", false) || r.flag("process_reward_model", false);
  const std::string name = reward ? "rm" : lower(r.text("rl"));
  note_objective(r, {.name = name,
                     .adapter = r.has("adapter") && !r.flag("rl_adapter_ref_model", false),
                     .reference = !r.flag("precompute_ref_log_probs", false) && (name != "grpo" || r.number("trl.beta", 0) > 0),
                     .vllm = r.flag("trl.use_vllm", false)});
  if (!name.empty() && objective_in(name).empty())
    r.finding(Effect::unknown, "rl", "not simulated: only the model's own loss on one batch is");
}

void read_settings(Reader& r) {
  r.job.trainer = kTrainer;
  set_model(r, "base_model");
  read_batch(r);
  read_precision(r);
  read_attention(r);
  read_rows(r);
  read_shared_arguments(r, kTrainer);
  read_checkpointing(r);
  read_adapter(r);
  read_quantization(r);
  read_optimizer(r);
  read_kernels(r);
  read_unfrozen(r);
  read_evaluation(r);
  read_dataloader(r, kTrainer);
  read_ddp(r, /*find_unused=*/!r.job.checkpointing.on);
  read_deepspeed_setting(r, "deepspeed");
  if (const Json* fsdp = r.find("fsdp_config"); fsdp && !fsdp->empty() && !r.has("fsdp")) read_fsdp_keys(r, "fsdp_config", "fsdp_config");
  r.ignore({"fsdp_version", "fsdp_final_state_dict_type"});
  for (const char* key : {"tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree", "dp_shard_size"})
    if (r.integer(key, 1) > 1) not_simulated(r, key, "this kind of parallelism");
  read_objective(r);
  for (const char* key : {"relora", "fp8", "use_onebitllms", "quantize_moe_experts", "qat"})
    if (r.has(key) && *r.find(key) != false) r.finding(Effect::unknown, key, "not simulated");
  ignore_rest(r);
  r.finish();
}

Evidence evidence_of_axolotl(const Document& d) {
  if (d.kind == Document::Kind::command) {
    const std::string program = program_of(d);
    return program == "axolotl" || program.starts_with("axolotl.cli.") ? Evidence{program} : Evidence{};
  }
  if (d.kind != Document::Kind::yaml || !d.value.is_object() || !d.value.contains("base_model")) return {};
  Evidence keys = keys_there(d, {"base_model", "micro_batch_size", "sequence_len", "adapter", "datasets", "pretraining_dataset"});
  return keys.size() > 1 ? keys : Evidence{};
}

void read_axolotl(Reader& r) {
  if (r.document.kind != Document::Kind::command) return read_settings(r);
  read_launch(r);
  // `axolotl train` starts accelerate itself, on every device that it sees
  if (r.text("launcher").empty() && program_of(r.document) == "axolotl" && visible_devices(r))
    set_world(r, std::max<int64_t>(*visible_devices(r), 1), 1, r.document.name + ": CUDA_VISIBLE_DEVICES");
  const Document settings = settings_of(r, {"config"});
  Reader inner(r.job, settings);
  inner.ignore({"launcher", "cloud"});
  read_settings(inner);
}

}  // namespace

const Format& axolotl_format() {
  static const Format kFormat{"axolotl",     "axolotl's YAML or command", Rank::trainer, evidence_of_axolotl, read_axolotl, nullptr,
                              writes_axolotl};
  return kFormat;
}

}  // namespace plimsoll
