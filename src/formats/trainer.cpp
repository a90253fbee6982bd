#include "formats/trainer.h"
#include "formats/fsdp_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "formats/readers.h"
#include "job/fields.h"
#include "job/settings.h"
#include "optim/entry.h"
#include "util/text.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// One of transformers' `optim` names (transformers 5.12, training_args.py, OptimizerNames) with the optimizer that trainer_optimizer.py
// makes of it.
struct HfOptimizer {
  const TransformersName& spelling;
  const OptimizerEntry& entry;
};

const std::vector<HfOptimizer>& hf_optimizers() {
  static const std::vector<HfOptimizer> kOptimizers = [] {
    std::vector<HfOptimizer> out;
    for (const OptimizerEntry& entry : optimizer_registry())
      for (const TransformersName& spelling : entry.transformers) out.push_back({spelling, entry});
    return out;
  }();
  return kOptimizers;
}

// Arguments of optimizers that memory depends on; rates, betas and the like are left out.
Json memory_arguments(const Json& args, const std::string& more = "") {
  Json kept = Json::object();
  if (!args.is_object()) return kept;
  std::vector<std::string> keys{"momentum", "nesterov", "dampening", "amsgrad", "centered", "foreach", "fused", "slice_p"};
  for (const std::string& key : split_at(more, ' ')) keys.push_back(key);
  for (const std::string& key : keys) {
    const auto it = args.find(key);
    if (it == args.end() || it->is_null()) continue;
    kept[key] = it->is_string() ? parse_scalar(it->get<std::string>()) : *it;
  }
  return kept;
}

// optim_target_modules: the layers whose gradients are projected. "layerwise" steps in backward.
void read_low_rank(Reader& r, const std::string& name, std::string_view path, Json& args) {
  const Json* targets = r.find("optim_target_modules");
  if (targets)
    args["target_modules"] = *targets;
  else
    r.finding(Effect::refused, path, "without optim_target_modules, which say whose gradients are projected; simulated for all-linear",
              "trainer_optimizer.py, _setup_low_rank_optimizer: a ValueError");
  if (!name.ends_with("layerwise")) return;
  r.set("optimizer_in_backward", true, path);
  if (r.integer("gradient_accumulation_steps", 1) > 1)
    r.finding(Effect::refused, "gradient_accumulation_steps", "a layerwise optimizer updates in every backward: a ValueError",
              "trainer_optimizer.py, _setup_low_rank_optimizer");
}

// What of a name is not as transformers has it.
void note_optimizer(Reader& r, const std::string& name, std::string_view path) {
  if (name == "adamw_torch_xla" || name == "adamw_torch_npu_fused")
    r.finding(Effect::unknown, path, "simulated as AdamW in its fused form on CUDA: two states a parameter, no temporaries",
              name.ends_with("xla") ? "torch_xla.amp.syncfree and the memory of a TPU are not modelled"
                                    : "NpuFusedAdamW and the allocator of torch_npu are not modelled");
  if (name == "galore_adafactor_layerwise")
    r.finding(Effect::refused, path, "Adafactor is given a learning rate together with relative_step: a ValueError",
              "trainer_optimizer.py, _get_galore_optimizer switches relative_step off for galore_adafactor alone");
}

}  // namespace

void set_optimizer(Reader& r, const std::string& name, const Json& args, std::string_view path) {
  r.set("optimizer", name, path);
  r.set("optimizer_args", memory_arguments(args), path);
}

void set_hf_optimizer(Reader& r, const std::string& name, const Json& args, std::string_view path) {
  std::vector<std::string> known;
  for (const HfOptimizer& o : hf_optimizers()) {
    known.emplace_back(o.spelling.name);
    if (name != o.spelling.name) continue;
    Json all = args.is_string() && !args.get<std::string>().empty()
                   ? read_pairs(split_at(args.get<std::string>(), ','), r.origin("optim_args"), "write momentum=0.9,nesterov=true")
                   : args;
    if (!all.is_object()) all = Json::object();
    const Json own = Json::parse(o.spelling.args);
    const std::string taken = o.entry.optim_args;
    for (const auto& item : own.items())
      if (!all.contains(item.key()) || taken.find(item.key()) == std::string::npos) all[item.key()] = item.value();
    Json kept = memory_arguments(all, taken);
    if (o.entry.takes("target_modules")) read_low_rank(r, name, path, kept);
    r.set("optimizer", o.entry.name, path);
    r.set("optimizer_args", kept, path);
    note_optimizer(r, name, path);
    return;
  }
  throw Error(fmt::format("[{}] '{}' is no optimizer of transformers", r.origin(path), printable(name, 80)), did_you_mean(name, known));
}

std::optional<HfOptimizerName> hf_optimizer_of(const OptimizerSpec& optimizer) {
  const Json& wanted = optimizer.args.values();
  std::optional<HfOptimizerName> best;
  size_t said = 0;
  for (const HfOptimizer& o : hf_optimizers()) {
    const Json own = Json::parse(o.spelling.args);
    if (optimizer.name != o.entry.name || (best && own.size() <= said)) continue;
    std::vector<std::string> rest;
    bool fits = true;
    for (const auto& item : own.items()) fits = fits && wanted.value(item.key(), Json()) == item.value();
    for (const auto& item : wanted.items())
      if (!own.contains(item.key())) rest.push_back(item.key() + "=" + dump(item.value()));
    // transformers hands optim_args on to these
    if (!fits || (!rest.empty() && optimizer.name != "SGD" && optimizer.name != "RMSprop")) continue;
    best = HfOptimizerName{o.spelling.name, join(rest, ",")};
    said = own.size();
  }
  return best;
}

void set_types_of_checkpoint(Reader& r, const std::string& autocast, const std::string& origin) {
  set_types(r, "fp32", autocast, origin + kCheckpointsType);
}

std::string short_type(const std::string& name) {
  std::string type = lower(name);
  if (type.starts_with("torch.")) type.erase(0, 6);
  if (type == "bfloat16" || type == "bf16") return "bf16";
  if (type == "float16" || type == "fp16" || type == "half") return "fp16";
  if (type == "float32" || type == "fp32" || type == "float") return "fp32";
  return "";
}

void set_types(Reader& r, const std::string& weights, const std::string& autocast, const std::string& origin) {
  std::string precision = weights;
  if (weights == "fp32" && !autocast.empty()) precision = autocast == "bf16" ? "amp" : "amp-fp16";
  apply_setting(r.job, "precision", precision, origin);
  apply_setting(r.job, "autocast", weights == "bf16" && autocast == "bf16", origin);
  if (weights != "fp32" && !autocast.empty() && (weights == "fp16" || autocast == "fp16"))
    r.note(Effect::partial, fmt::format("{} autocast over {} weights: simulated without the autocast", autocast, weights));
}

void set_model(Reader& r, std::string_view path) {
  if (!r.has(path)) return;
  const std::string name = r.text(path);
  std::error_code error;
  const fs::path beside = fs::path(r.document.folder()) / name;
  r.set("model", Json(!name.empty() && fs::exists(beside, error) ? beside.string() : name), path);
}

void set_attention(Reader& r, const std::string& implementation, std::string_view path) {
  const std::string name = lower(implementation);
  if (name == "eager") return r.set("attention", "eager", path);
  if (name == "sdpa") return r.set("attention", "auto", path);
  if (name.find("flash") != std::string::npos) {
    r.set("attention", "flash-attention-2", path);
    if (name != "flash_attention_2") r.finding(Effect::note, path, "simulated as flash_attention_2, which keeps the same tensors");
    return;
  }
  r.finding(Effect::unknown, path, "this attention is not modelled: PyTorch's scaled_dot_product_attention is simulated");
}

void read_dataloader(Reader& r, const std::string& trainer) {
  r.set("workers", "dataloader_num_workers");
  const bool workers = r.integer("dataloader_num_workers", 0) > 0;
  if (r.has("dataloader_pin_memory"))
    r.set("pin_memory", r.flag("dataloader_pin_memory", true), "dataloader_pin_memory");
  else
    r.set_default("pin_memory", true, trainer);
  const bool persistent = r.flag("dataloader_persistent_workers", false), prefetch = r.has("dataloader_prefetch_factor");
  if (workers && persistent) r.set("persistent_workers", true, "dataloader_persistent_workers");
  if (workers && prefetch) r.set("prefetch_factor", "dataloader_prefetch_factor");
  if (workers) return;
  r.finding(Effect::note, "dataloader_num_workers", "the process that trains makes each batch itself, and the device waits for it");
  if (prefetch)
    r.finding(Effect::refused, "dataloader_prefetch_factor", "there are no workers to fetch ahead",
              "TrainingArguments raises a ValueError");
  if (persistent)
    r.finding(Effect::refused, "dataloader_persistent_workers", "there are no workers to keep", "DataLoader raises a ValueError");
}

void read_ddp(Reader& r, bool find_unused) {
  r.ignore({"ddp_timeout", "ddp_backend"});
  for (const char* key : {"ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph"}) r.has(key);
  if (!r.job.parallel.ddp) return;
  Json ddp{{"world", r.job.parallel.ddp->world},
           {"find_unused_parameters", r.flag("ddp_find_unused_parameters", find_unused)},
           {"broadcast_buffers", r.flag("ddp_broadcast_buffers", true)},
           {"static_graph", r.flag("ddp_static_graph", false)}};
  if (r.has("ddp_bucket_cap_mb")) ddp["bucket_mb"] = r.number("ddp_bucket_cap_mb", 25);
  apply_setting(r.job, "ddp", ddp, r.job.origin["ddp"]);
}

void set_packed(Reader& r, int64_t rows, int64_t tokens, std::string_view path) {
  constexpr int64_t kMost = 4096;  // samples that are listed one by one
  if (rows < 1 || rows > kMost || tokens < 1) return;
  r.set("lengths", Json(std::vector<int64_t>(static_cast<size_t>(rows), tokens)), path);
  r.set("collate", "pack", path);
}

void not_simulated(Reader& r, std::string_view path, const std::string& what) {
  r.finding(Effect::unknown, path,
            what + " is not read from here yet: the answer is for a process that holds all of it; ask with --fsdp or --megatron");
  if (r.job.parallel.ddp) apply_setting(r.job, "ddp", false, r.origin(path));
}

void read_deepspeed_setting(Reader& r, std::string_view path) {
  const Json* value = r.find(path);
  if (!value || (value->is_string() && value->get<std::string>().empty())) return;
  if (value->is_string()) {
    r.include(path);
    return;
  }
  if (!value->is_object())
    throw Error(fmt::format("[{}] is {}, expected a file or a mapping", r.origin(path), dump(*value).substr(0, 80)),
                "name DeepSpeed's JSON file");
  Document inside;
  inside.name = r.origin(path);
  inside.path = r.document.path;
  inside.kind = Document::Kind::json;
  inside.value = *value;
  Reader inner(r.job, inside);
  read_deepspeed(inner);
}

Json names_of(const Json& value) {
  if (!value.is_string()) return value;
  Json names = Json::array();
  for (std::string name : split_at(value.get<std::string>(), ',')) {
    name.erase(0, std::min(name.find_first_not_of(' '), name.size()));
    while (name.ends_with(' ')) name.pop_back();
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

void ignore_training_arguments(Reader& r) {
  r.ignore({"output_dir", "overwrite_output_dir", "num_train_epochs", "max_steps", "learning_rate", "lr_scheduler_type",
            "lr_scheduler_kwargs", "lr_scheduler", "warmup_steps", "warmup_ratio", "weight_decay", "adam_beta1", "adam_beta2",
            "adam_epsilon", "seed", "data_seed"});
  r.ignore({"average_tokens_across_devices",
            "tf32",
            "neftune_noise_alpha",
            "logging_strategy",
            "logging_steps",
            "logging_first_step",
            "log_on_each_node",
            "logging_nan_inf_filter",
            "include_num_input_tokens_seen",
            "include_tokens_per_second",
            "log_level",
            "log_level_replica",
            "disable_tqdm",
            "report_to",
            "run_name",
            "project",
            "trackio_space_id",
            "trackio_bucket_id",
            "trackio_static_space_id",
            "logging_dir",
            "plot_loss"});
  r.ignore({"eval_steps", "eval_delay", "prediction_loss_only", "eval_on_start", "eval_do_concat_batches", "eval_use_gather_object",
            "include_for_metrics", "include_inputs_for_metrics", "batch_eval_metrics", "bf16_full_eval", "fp16_full_eval",
            "eval_accumulation_steps", "metric_for_best_model", "greater_is_better", "load_best_model_at_end"});
  r.ignore({"save_only_model", "save_strategy", "save_steps", "save_on_each_node", "save_total_limit", "save_safetensors",
            "enable_jit_checkpoint", "push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push",
            "hub_revision", "push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token"});
  r.ignore({"ignore_data_skip",
            "restore_callback_states_from_checkpoint",
            "full_determinism",
            "dataloader_drop_last",
            "remove_unused_columns",
            "label_names",
            "length_column_name",
            "debug",
            "skip_memory_metrics",
            "do_train",
            "do_predict",
            "resume_from_checkpoint",
            "local_rank",
            "jit_mode_eval",
            "use_ipex",
            "ray_scope",
            "torchdynamo",
            "half_precision_backend",
            "fp16_opt_level",
            "fp16_backend",
            "torch_compile_options",
            "past_index",
            "mp_parameters",
            "tpu_num_cores",
            "tpu_metrics_debug",
            "torch_empty_cache_steps",
            "_n_gpu",
            "distributed_state",
            "cached_setup_devices",
            "deepspeed_plugin",
            "use_legacy_prediction_loop",
            "use_mps_device",
            "eval_use_gather_object",
            "trust_remote_code",
            "cache_dir",
            "use_fast_tokenizer",
            "optim_target_modules"});
}

namespace {
bool updates_in_backward(Reader& r) {
  for (const char* key : {"optim", "optimizer"})
    if (const Json* v = r.find(key); v && v->is_string()) {
      const std::string name = v->get<std::string>();
      if (name == "lomo" || name == "adalomo" || name.ends_with("_layerwise")) return true;
    }
  for (const std::string kind : {"galore", "apollo"})  // LLaMA-Factory's
    if (r.flag("use_" + kind, false) && r.flag(kind + "_layerwise", false)) return true;
  return false;
}
}  // namespace

void read_shared_arguments(Reader& r, const std::string& trainer) {
  ignore_training_arguments(r);
  r.set("accumulation", "gradient_accumulation_steps");
  if (updates_in_backward(r)) {
    r.finding(Effect::none, "max_grad_norm", "gradients are used and dropped in backward: none is left to clip");
  } else if (r.has("max_grad_norm")) {
    if (r.number("max_grad_norm", 1.0) > 0) r.set("clip", "max_grad_norm");
  } else {
    r.set_default("clip", 1.0, trainer);
  }
  r.set_default("drop_output", true, trainer);

  const bool compile = r.flag("torch_compile", false), implied = r.has("torch_compile_backend") || r.has("torch_compile_mode");
  if (compile || implied) r.set("compile", true, compile ? "torch_compile" : "torch_compile_backend");
  if (implied && !compile)
    r.finding(Effect::other, "torch_compile", "the model is compiled all the same", "a backend or mode is given, which turns it on");

  if (r.flag("gradient_checkpointing", false) && r.flag("use_cache", false))
    r.finding(Effect::none, "use_cache", "the model keeps no cache", "models turn it off where gradients are checkpointed");
  if (r.flag("auto_find_batch_size", false))
    r.finding(Effect::other, "auto_find_batch_size", "when memory runs out the batch is made smaller and training starts again",
              "the answer is for the batch as written");
  if (r.number("label_smoothing_factor", 0) > 0)
    r.finding(Effect::unknown, "label_smoothing_factor",
              "the loss is computed outside of the model, from log_softmax of all logits: not simulated, the model's own loss is");
  if (r.flag("use_cpu", false) || r.flag("no_cuda", false))
    r.finding(Effect::other, r.has("use_cpu") ? "use_cpu" : "no_cuda", "training runs on the CPU: no device memory is used");

  for (const char* key : {"per_gpu_train_batch_size", "per_gpu_eval_batch_size"})
    r.finding(Effect::refused, key, std::string("use per_device_") + (key + 8),
              "transformers 5 does not have it; before, it won over the other");
  if (!r.has("per_device_train_batch_size")) r.set("batch", "per_gpu_train_batch_size");

  const bool packed = r.flag("packing", false) || r.flag("sample_packing", false);
  if (packed && r.flag("group_by_length", false)) r.finding(Effect::none, "group_by_length", "rows are packed, so all have one length");
  if (packed && r.text("train_sampling_strategy") == "group_by_length")
    r.finding(Effect::none, "train_sampling_strategy", "rows are packed, so all have one length");
  r.ignore({"group_by_length", "train_sampling_strategy"});

  const Json* fsdp = r.find("fsdp");
  const bool shards = fsdp && !fsdp->empty() && *fsdp != "" && *fsdp != false;
  // a mapping or `true` names no strategy: it is in fsdp_config
  if (shards)
    read_fsdp_keys(r, "fsdp", "fsdp_config",
                   fsdp->is_array()    ? join(names_of(*fsdp).get<std::vector<std::string>>(), " ")
                   : fsdp->is_string() ? fsdp->get<std::string>()
                                       : "");
  r.ignore({"fsdp_config", "fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap"});
  if (r.has("parallelism_config")) not_simulated(r, "parallelism_config", "this kind of parallelism");
}

}  // namespace plimsoll
