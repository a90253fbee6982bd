// TrainingArguments of transformers: JSON as to_json_string writes it, YAML with the same keys (TRL's and alignment-handbook's recipes hold
// those of TRL and of the model, too), and commands `python train.py --per_device_train_batch_size 4 --bf16`. Also the reader of any other
// Python program whose command names a file of settings.
#include <fmt/format.h>

#include <algorithm>

#include "formats/format.h"
#include "formats/launch.h"
#include "formats/objectives.h"
#include "formats/trainer.h"
#include "job/distribution.h"
#include "job/packed_storage.h"
#include "job/quantization_kind.h"
#include "job/settings.h"
#include "util/outcome.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

bool has_any(const Json& value, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (value.is_object() && value.contains(key)) return true;
  return false;
}

// Keys that only TrainingArguments have; where no batch is said in another trainer's words, num_train_epochs, or two that others have as
// well.
Evidence training_arguments(const Document& d) {
  Evidence own = keys_there(d, {"per_device_train_batch_size", "per_device_eval_batch_size", "per_gpu_train_batch_size"});
  const bool certain = !own.empty();
  const bool likely = !keys_there(d, {"num_train_epochs"}).empty();
  for (std::string& key :
       keys_there(d, {"gradient_accumulation_steps", "num_train_epochs", "gradient_checkpointing", "model_name_or_path"}))
    own.push_back(std::move(key));
  const bool other = !keys_there(d, {"batch_size", "train_batch_size", "micro_batch_size", "global_batch_size"}).empty();
  return certain || ((likely || own.size() > 1) && !other) ? own : Evidence{};
}

// Keys that only TRL's configurations have.
bool is_trl(const Document& d) {
  return has_any(d.value,
                 {"max_seq_length", "dataset_text_field", "use_peft", "packing", "completion_only_loss", "assistant_only_loss",
                  "dataset_num_proc", "load_in_4bit", "max_prompt_length", "dataset_mixer", "dataset_name", "lora_r", "padding_free"});
}

// Scripts of transformers' examples/pytorch, which have dataset_name as TRL's have.
bool is_example_of_transformers(const std::string& program) {
  static const std::vector<std::string> kScripts{"run_clm.py",
                                                 "run_mlm.py",
                                                 "run_plm.py",
                                                 "run_fim.py",
                                                 "run_glue.py",
                                                 "run_qa.py",
                                                 "run_seq2seq_qa.py",
                                                 "run_ner.py",
                                                 "run_swag.py",
                                                 "run_mae.py",
                                                 "run_mim.py",
                                                 "run_summarization.py",
                                                 "run_translation.py",
                                                 "run_xnli.py",
                                                 "run_classification.py",
                                                 "run_image_classification.py"};
  return std::find(kScripts.begin(), kScripts.end(), program) != kScripts.end();
}

bool is_python_program(const Document& d) {
  const std::string program = program_of(d);
  return program == "trl" || program.ends_with(".py") ||
         (!program.empty() && program.find('.') != std::string::npos && !program.ends_with(".sh"));
}

// A file of settings that the command names and that a trainer's reader takes.
Evidence named_settings(const Document& d) {
  const Json& flags = d.value["flags"];
  std::vector<std::string> names;
  for (const char* flag : {"config", "config_file"})
    if (flags.contains(flag) && flags[flag].is_string()) names.push_back(flags[flag].get<std::string>());
  for (const Json& argument : d.value["arguments"])
    if (const std::string text = argument.is_string() ? argument.get<std::string>() : "";
        text.ends_with(".yaml") || text.ends_with(".yml") || text.ends_with(".json"))
      names.push_back(text);
  for (const std::string& name : names) {
    const Outcome<Document> file = outcome_of([&] { return read_document(name); });
    if (file && format_of(*file)) return {name};
  }
  return {};
}

// What the user says about the type of the loaded weights: "" when nothing.
std::string loaded_type(Reader& r) {
  for (const char* key : {"torch_dtype", "dtype", "model_init_kwargs.torch_dtype", "model_init_kwargs.dtype"})
    if (r.has(key)) return short_type(r.text(key));
  return "";
}

// from_pretrained(dtype="auto"), which is what transformers 5 does when nothing is said (modeling_utils.py); TRL says float32 itself.
bool takes_checkpoints_type(Reader& r, bool trl) {
  for (const char* key : {"torch_dtype", "dtype", "model_init_kwargs.torch_dtype", "model_init_kwargs.dtype"})
    if (const Json* said = r.find(key)) return *said == "auto";
  return !trl && r.job.platform.transformers >= Version{5, 0};
}

void read_precision(Reader& r, const std::string& trainer, bool trl) {
  const bool fp16 = r.flag("fp16", false), bf16 = r.flag("bf16", trl && !fp16);
  if (fp16 && bf16)
    r.finding(Effect::refused, "fp16", "bf16 is on too: bf16 is simulated", "TrainingArguments raises a ValueError when both are true");
  std::string autocast = bf16 ? "bf16" : fp16 ? "fp16" : "", origin = "default of " + trainer;
  if (r.has("bf16") || r.has("fp16")) origin = r.origin(fp16 && !bf16 ? "fp16" : "bf16");
  const auto launched = r.job.origin.find("precision");
  if (launched != r.job.origin.end() && (r.job.precision == Precision::amp || r.job.precision == Precision::amp_fp16)) {
    const std::string theirs = r.job.precision == Precision::amp ? "bf16" : "fp16";
    if (autocast.empty())
      autocast = theirs, origin = launched->second;
    else if (autocast != theirs)
      r.note(Effect::conflict, fmt::format("{} autocast is used: the launcher's {} ({}) is not", autocast, theirs, launched->second),
             "TrainingArguments overwrite ACCELERATE_MIXED_PRECISION");
  }
  const std::string type = loaded_type(r);
  if (type.empty() && takes_checkpoints_type(r, trl)) return set_types_of_checkpoint(r, autocast, origin);
  if (type.empty() && trl)
    r.note(Effect::note, "the weights are in fp32: TRL's own default, whatever the checkpoint has; --dtype bfloat16 says otherwise",
           "dtype of ModelConfig and of SFTTrainer's model_init_kwargs is float32 (TRL 1.16)");
  if (type.empty() && !trl)
    r.note(Effect::note, "the type of the weights is not said: transformers before 5 loads them in fp32",
           "from_pretrained of transformers 5 takes the checkpoint's own type; --precision bf16 --autocast says otherwise");
  const std::string weights = type.empty() ? "fp32" : type;
  if (weights == "fp16" && autocast == "fp16" && !r.flag("use_peft", false))
    r.finding(Effect::refused, "fp16", "weights in fp16 cannot be trained with loss scaling",
              "GradScaler: Attempting to unscale FP16 gradients");
  set_types(r, weights, autocast, origin);
}

void read_checkpointing(Reader& r, const std::string& trainer, bool trl) {
  const bool on = r.flag("gradient_checkpointing", trl);
  const bool kwargs = r.has("gradient_checkpointing_kwargs.use_reentrant");
  // modeling_utils.py, gradient_checkpointing_enable: the default was True before transformers 5
  const bool reentrant = r.flag("gradient_checkpointing_kwargs.use_reentrant", r.job.platform.transformers < Version{5, 0});
  r.ignore({"gradient_checkpointing_kwargs"});
  if (!on && kwargs) r.finding(Effect::none, "gradient_checkpointing_kwargs", "nothing is checkpointed", "gradient_checkpointing is false");
  const Json value = on && reentrant ? Json{{"reentrant", true}} : Json(on);
  if (r.has("gradient_checkpointing"))
    r.set("checkpointing", value, "gradient_checkpointing");
  else if (on)
    r.set_default("checkpointing", value, trainer);
}

void read_adapter(Reader& r) {
  const bool peft = r.flag("use_peft", false);
  const std::initializer_list<const char*> keys{"lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save"};
  if (!peft) {
    for (const char* key : keys)
      if (r.has("use_peft") || is_trl(r.document))
        r.finding(Effect::none, key, "no adapter is made: everything is trained", "use_peft is not true");
    return r.ignore({"lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save", "lora_task_type", "use_rslora",
                     "use_dora"});
  }
  Json lora{{"r", r.integer("lora_r", 16)}, {"lora_alpha", r.number("lora_alpha", 32)}, {"lora_dropout", r.number("lora_dropout", 0.05)}};
  if (const Json* targets = r.find("lora_target_modules"))
    lora["target_modules"] = *targets == "all-linear" ? *targets : names_of(*targets);
  if (const Json* saved = r.find("lora_modules_to_save")) lora["modules_to_save"] = names_of(*saved);
  if (r.flag("use_dora", false)) lora["use_dora"] = true;
  if (r.text("lora_task_type") == "SEQ_CLS") lora["task_type"] = "SEQ_CLS";
  r.ignore({"use_rslora", "lora_task_type"});
  r.set("lora", lora, "use_peft");
}

void read_quantization(Reader& r) {
  const bool four = r.flag("load_in_4bit", false), eight = r.flag("load_in_8bit", false);
  const std::string type = loaded_type(r), kind = r.text("bnb_4bit_quant_type", "nf4");
  const bool nested = r.flag("use_bnb_nested_quant", false);
  const std::string storage = r.text("bnb_4bit_quant_storage", "uint8");
  if (four)
    r.set("quantization",
          {{"type", kind},
           {"storage", short_type(storage).empty() ? storage : short_type(storage)},
           {"double_quant", nested},
           {"compute_dtype", type.empty() ? "fp32" : type}},
          "load_in_4bit");
  else if (eight)
    r.set("quantization", "int8", "load_in_8bit");
}

void read_rows(Reader& r, bool trl) {
  for (const char* key : {"max_seq_length", "max_length", "block_size", "max_source_length"}) r.set("seq", key);
  if (trl) r.set_default("seq", 1024, "TRL");
  r.set("pad_to_multiple_of", "pad_to_multiple_of");
  const bool packing = r.flag("packing", false), flat = r.flag("padding_free", false);
  const std::string strategy = r.text("packing_strategy", "bfd");
  // SFTTrainer flattens packed rows where the kernel can tell samples apart
  const bool flattened = flat || (packing && strategy != "wrapped" && r.job.attention == AttentionKernel::flash_attention_2);
  if (flattened) set_packed(r, r.job.batch, r.job.seq, flat ? "padding_free" : "packing");
  r.ignore({"eval_packing",        "truncation_mode",
            "shuffle_dataset",     "completion_only_loss",
            "assistant_only_loss", "dataset_text_field",
            "dataset_kwargs",      "dataset_num_proc",
            "dataset_name",        "dataset_config",
            "dataset_train_split", "dataset_test_split",
            "dataset_mixer",       "dataset_mixture",
            "dataset_splits",      "dataset_configs",
            "dataset_streaming",   "chat_template",
            "chat_template_path",  "eos_token",
            "pad_token",           "preprocessing_num_workers",
            "model_revision",      "tokenizer_name_or_path",
            "system_prompt",       "task",
            "text_column",         "train_file",
            "validation_file",     "dataset_config_name",
            "max_train_samples",   "max_eval_samples",
            "overwrite_cache",     "validation_split_percentage",
            "streaming",           "tokenizer_name",
            "config_name",         "auto_insert_empty_system_msg",
            "benchmarks"});
}

void read_evaluation(Reader& r, const std::string& trainer) {
  const std::string strategy = lower(r.text("eval_strategy", r.text("evaluation_strategy", "no")));
  const bool on = strategy != "no" || r.flag("do_eval", false);
  r.has("per_device_eval_batch_size");
  if (!on) return;
  if (!r.set("eval_batch", "per_device_eval_batch_size")) r.set_default("eval_batch", 8, trainer);
}

// The loss of a pair of answers, generation by a policy: other steps than the ones that are simulated.
// `program`: what the command or the script is called.
void read_other_objectives(Reader& r, const std::string& program) {
  Objective o;
  o.name = objective_in(program);
  const bool generates = r.has("num_generations") || r.has("max_completion_length") || r.flag("use_vllm", false);
  const bool prefers = r.has("beta") || r.has("max_prompt_length") || r.has("precompute_ref_log_probs");
  if (o.name.empty()) o.name = generates ? "grpo" : prefers ? "dpo" : "";
  o.adapter = r.flag("use_peft", false);
  // GRPOConfig's beta is 0 unless it is said: no reference is loaded then
  const bool free = r.flag("precompute_ref_log_probs", false) || r.flag("reference_free", false);
  o.reference = !free && (o.name != "grpo" || r.number("beta", 0) > 0);
  o.reward = r.has("reward_model_path") || r.has("reward_model_name_or_path");
  o.vllm = r.flag("use_vllm", false);
  r.ignore({"max_prompt_length", "vllm_mode", "vllm_gpu_memory_utilization", "reward_model_path", "reward_model_name_or_path"});
  note_objective(r, o);
}

void read_arguments(Reader& r, const std::string& program = "") {
  const bool trl = is_trl(r.document) && !is_example_of_transformers(program);
  const std::string trainer = trl ? "TRL" : "transformers";
  r.job.trainer = trainer;
  for (const char* key : {"model_name_or_path", "model"}) set_model(r, key);
  if (r.has("attn_implementation")) set_attention(r, r.text("attn_implementation"), "attn_implementation");
  if (r.flag("use_flash_attention_2", false)) r.set("attention", "flash-attention-2", "use_flash_attention_2");

  if (!r.set("batch", "per_device_train_batch_size") && !r.has("per_gpu_train_batch_size")) r.set_default("batch", 8, trainer);
  const int64_t world = world_size(r.job);
  if (r.flag("accelerator_config.split_batches", false) && world > 1) {
    if (r.job.batch % world != 0)
      r.finding(Effect::refused, "accelerator_config.split_batches",
                fmt::format("a batch of {} cannot be split over {} processes", r.job.batch, world),
                "accelerate's data loader raises a ValueError");
    else
      r.set("batch", r.job.batch / world, "accelerator_config.split_batches");
  }
  r.ignore({"accelerator_config"});

  read_shared_arguments(r, trainer);
  read_precision(r, trainer, trl);
  read_checkpointing(r, trainer, trl);
  const Json* args = r.find("optim_args");
  if (r.flag("adafactor", false))
    set_hf_optimizer(r, "adafactor", nullptr, "adafactor");
  else if (r.has("optim"))
    set_hf_optimizer(r, r.text("optim"), args ? *args : Json(), "optim");
  else if (!r.job.origin.contains("optimizer")) {
    r.set_default("optimizer", "AdamW", trainer);
    r.set_default("optimizer_args", {{"fused", true}}, trainer);
  }
  if (r.flag("use_liger_kernel", r.flag("use_liger", false))) {
    const char* path = r.has("use_liger_kernel") ? "use_liger_kernel" : "use_liger";
    Json kernels = Json::array();
    for (const char* kernel : {"rope", "rms_norm", "swiglu"})
      if (r.flag(std::string("liger_kernel_config.") + kernel, true)) kernels.push_back(kernel);
    r.set("liger_kernels", kernels, path);
    if (r.flag("liger_kernel_config.fused_linear_cross_entropy", true)) r.set("loss_kernel", "liger", path);
  }
  r.ignore({"liger_kernel_config"});
  if (r.flag("activation_offloading", false)) r.set("offload_activations", "pinned", "activation_offloading");
  read_adapter(r);
  read_quantization(r);
  read_rows(r, trl);
  read_evaluation(r, trainer);
  read_dataloader(r, trainer);
  read_other_objectives(r, program);
  read_ddp(r, /*find_unused=*/!r.job.checkpointing.on);
  read_deepspeed_setting(r, "deepspeed");
  r.ignore({"model_init_kwargs", "loss_type"});
  r.finish();
}

Evidence evidence_of_hf_training_arguments(const Document& d) {
  if (!d.value.is_object()) return {};
  if (d.kind != Document::Kind::command) return has_any(d.value, {"model", "_component_"}) ? Evidence{} : training_arguments(d);
  if (!is_python_program(d)) return {};
  if (Evidence flags = training_arguments(d); !flags.empty()) return flags;
  if (program_of(d) == "trl") return {"trl"};
  if (flag_text(d, "deepspeed").ends_with(".json")) return {"--deepspeed"};  // DeepSpeed's own is a switch beside --deepspeed_config
  return named_settings(d);
}

void read_hf_training_arguments(Reader& r) {
  if (r.document.kind != Document::Kind::command) return read_arguments(r);
  if (r.text("launcher").empty() && visible_devices(r).value_or(1) > 1)
    r.note(Effect::other,
           fmt::format("one process with {} devices: Trainer uses nn.DataParallel, which is not simulated; the answer is for one device",
                       *visible_devices(r)),
           "no launcher (torchrun, accelerate) starts a process for each");
  read_launch(r);
  const Document settings = settings_of(r, {"config", "config_file"});
  // A file of another trainer, named by a program that is not known.
  const Format* format = settings.kind == Document::Kind::command ? nullptr : format_of(settings);
  if (format && std::string(format->name) != "hf_training_arguments") return read_as(*format, settings, r.job);
  Reader inner(r.job, settings);
  const Json& arguments = r.document.value["arguments"];
  const bool trl = program_of(r.document) == "trl" && !arguments.empty() && arguments[0].is_string();  // `trl dpo`
  read_arguments(inner, trl ? arguments[0].get<std::string>() : program_of(r.document));
}

bool says_trl(const EncodeRequest& w) { return w.before.trainer == "TRL"; }

Encoded encode_batch(const EncodeRequest& w) {
  const bool split = w.is("accelerator_config.split_batches") && world_size(w.job) > 1;
  return {{{present(w, {"per_device_train_batch_size", "per_gpu_train_batch_size"}), w.job.batch * (split ? world_size(w.job) : 1)}}, ""};
}

Encoded encode_length(const EncodeRequest& w) {
  const std::string key = present(w, {"max_length", "max_seq_length", "block_size", "max_source_length"});
  if (!w.has(key) && !says_trl(w)) return {{}, fmt::format("TrainingArguments have no length: tokenize with max_length={}", w.job.seq)};
  return {{{key, w.job.seq}}, ""};
}

// Autocast is TrainingArguments' own; the type of the weights is the model's, which TRL's arguments have.
Encoded encode_precision(const EncodeRequest& w) {
  const Precision p = w.job.precision;
  const bool half = p == Precision::bf16 || p == Precision::fp16;
  const std::string type = p == Precision::bf16 ? "bfloat16" : p == Precision::fp16 ? "float16" : "float32";
  std::string key = says_trl(w) ? "dtype" : "";
  for (const char* known : {"model_init_kwargs.dtype", "model_init_kwargs.torch_dtype", "dtype", "torch_dtype"})
    if (w.find(known)) key = known;
  const bool was_half = w.before.precision == Precision::bf16 || w.before.precision == Precision::fp16;
  if (half && key.empty())
    return {{},
            fmt::format("TrainingArguments do not say the type of the weights: load the model with dtype=torch.{}{}", type,
                        w.job.autocast ? "" : ", and leave bf16 and fp16 false")};
  Encoded encoded{{{"bf16", p == Precision::amp || w.job.autocast}}, ""};
  if (w.find("fp16") || p == Precision::amp_fp16) encoded.keys.push_back({"fp16", p == Precision::amp_fp16});
  if (half || was_half) encoded.keys.push_back({key, type});
  return encoded;
}

Encoded encode_own_checkpointing(const EncodeRequest& w) { return encode_checkpointing(w, w.job.platform.transformers < Version{5, 0}); }

Encoded encode_optimizer(const EncodeRequest& w) {
  Encoded encoded = encode_hf_optimizer(w, "optim");
  if (!encoded.keys.empty() && w.is("adafactor")) encoded.keys.push_back({"adafactor", false});
  return encoded;
}

Encoded encode_liger(const EncodeRequest& w) {
  const LossKernel kernel = w.job.loss_settings.kernel;
  if (kernel != LossKernel::liger && kernel != LossKernel::model) return {};
  return {{{w.find("use_liger") ? "use_liger" : "use_liger_kernel", kernel == LossKernel::liger || w.job.loss_settings.liger.any()}}, ""};
}

Encoded encode_offload(const EncodeRequest& w) {
  if (!says_trl(w) || w.job.offload_activations == Offload::pageable) return {};
  return {{{"activation_offloading", w.job.offload_activations == Offload::pinned}}, ""};
}

Encoded encode_lora(const EncodeRequest& w) {
  const std::optional<AdapterSettings>& a = w.job.tuning.adapter;
  if (!says_trl(w)) return {};
  if (!a) return {{{"use_peft", false}}, ""};
  Encoded encoded{
      {{"use_peft", true}, {"lora_r", a->r}, {"lora_alpha", plain_number(a->alpha)}, {"lora_dropout", plain_number(a->dropout)}}, ""};
  if (!a->target_modules.empty()) encoded.keys.push_back({"lora_target_modules", targets_of(*a)});
  if (!a->modules_to_save.empty()) encoded.keys.push_back({"lora_modules_to_save", a->modules_to_save});
  if (a->use_dora || w.has("use_dora")) encoded.keys.push_back({"use_dora", a->use_dora});
  return encoded;
}

Encoded encode_quantization(const EncodeRequest& w) {
  const std::optional<QuantizationSettings>& q = w.job.tuning.quantization;
  if (!says_trl(w) || (q && !is_bitsandbytes(*q))) return {};
  Encoded encoded;
  const bool four = q && q->bits() == 4;
  if (four || w.find("load_in_4bit")) encoded.keys.push_back({"load_in_4bit", four});
  if ((q && !four) || w.find("load_in_8bit")) encoded.keys.push_back({"load_in_8bit", q && !four});
  const std::string kind = four ? q->type.substr(0, 3) : "";  // without its storage
  if (four && (kind != "nf4" || w.has("bnb_4bit_quant_type"))) encoded.keys.push_back({"bnb_4bit_quant_type", kind});
  const std::optional<WireType> storage = four ? packed_storage(*q) : std::nullopt;
  if (storage || w.has("bnb_4bit_quant_storage"))
    encoded.keys.push_back({"bnb_4bit_quant_storage", storage ? to_string(*storage) : "uint8"});
  if (four && (q->double_quant || w.has("use_bnb_nested_quant"))) encoded.keys.push_back({"use_bnb_nested_quant", q->double_quant});
  return encoded;
}

Encoded encode_attention(const EncodeRequest& w) {
  const AttentionKernel a = w.job.attention;
  if (!says_trl(w) && !w.find("attn_implementation"))
    return {{},
            fmt::format("TrainingArguments do not say it: load the model with attn_implementation=\"{}\"",
                        a == AttentionKernel::eager               ? "eager"
                        : a == AttentionKernel::flash_attention_2 ? "flash_attention_2"
                                                                  : "sdpa")};
  if (a == AttentionKernel::eager) return {{{"attn_implementation", "eager"}}, ""};
  if (a == AttentionKernel::automatic) return {{{"attn_implementation", "sdpa"}}, ""};
  if (a == AttentionKernel::flash_attention_2) return {{{"attn_implementation", "flash_attention_2"}}, ""};
  return {};
}

// fully_shard, version 2 of accelerate's plugin, over as many processes as the launcher starts.
Encoded encode_fsdp(const EncodeRequest& w) {
  const auto& f = w.job.parallel.fsdp;
  if (!f || f->replicas > 1 || f->reshard_to > 0) return {};
  if (world_size(w.before) != f->world)
    return {{}, "the launcher says how many processes there are: torchrun --nproc_per_node, accelerate launch --num_processes"};
  return {{{"fsdp", "full_shard auto_wrap"}, {"fsdp_config.version", 2}, {"fsdp_config.reshard_after_forward", f->reshard}}, ""};
}

const SettingsEncoder& writes_hf_training_arguments() {
  static const SettingsEncoder kWrites = [] {
    SettingsEncoder w{{{"batch", "per_device_train_batch_size", encode_batch},
                       {"accumulation", "gradient_accumulation_steps"},
                       {"seq", "max_length", encode_length},
                       {"precision", "bf16", encode_precision},
                       {"autocast", "bf16", encode_precision},
                       {"checkpointing", "gradient_checkpointing", encode_own_checkpointing},
                       {"optimizer", "optim", encode_optimizer},
                       {"optimizer_args", "optim", encode_optimizer},
                       {"clip", "max_grad_norm"},
                       {"compile", "torch_compile"},
                       {"loss_kernel", "use_liger_kernel", encode_liger},
                       {"liger_kernels", "use_liger_kernel", encode_liger},
                       {"offload_activations", "activation_offloading", encode_offload},
                       {"lora", "use_peft", encode_lora},
                       {"quantization", "load_in_4bit", encode_quantization},
                       {"attention", "attn_implementation", encode_attention},
                       {"eval_batch", "per_device_eval_batch_size"},
                       {"pad_to_multiple_of", "pad_to_multiple_of"},
                       {"ddp", "ddp_find_unused_parameters", encode_hf_ddp},
                       {"fsdp", "fsdp", encode_fsdp}},
                      FlagStyle::values};
    for (const KeyEncoder& k : dataloader_keys()) w.keys.push_back(k);
    return w;
  }();
  return kWrites;
}

}  // namespace

const Format& hf_training_arguments_format() {
  static const Format kFormat{"hf_training_arguments",
                              "TrainingArguments of transformers or TRL: JSON, YAML or command",
                              Rank::trainer,
                              evidence_of_hf_training_arguments,
                              read_hf_training_arguments,
                              nullptr,
                              writes_hf_training_arguments};
  return kFormat;
}

}  // namespace plimsoll
