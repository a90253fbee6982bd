#include "job/settings.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

#include "util/text.h"

namespace plimsoll {

namespace {

void apply_optimizer(Job& job, const Config& c) {
  const nlohmann::json* v = c.find({"optimizer"});
  if (!v) return;
  if (v->is_string()) {
    if (job.optimizer.name != v->get<std::string>()) job.optimizer.args = Config();  // those were another's
    job.optimizer.name = v->get<std::string>();
    return;
  }
  const Config fields("optimizer", *v);
  for (const auto& item : fields.values().items())
    if (item.key() != "name" && item.key() != "args")
      throw Error("[optimizer] '" + item.key() + "' is not known", "write optimizer: {name: AdamW, args: {fused: true}}");
  job.optimizer.name = fields.text({"name"}, job.optimizer.name);
  if (const nlohmann::json* args = fields.find({"args"})) job.optimizer.args = Config("optimizer args", *args);
}

bool parse_master_weights(const std::string& text) {
  if (text == "fp32") return true;
  if (text == "none" || text == "false") return false;
  throw Error("[job] master_weights '" + text + "' is not known", "known: none, fp32");
}

void apply_config(Job& job, const Config& c) {
  nlohmann::json merged = job.config.values();
  const Config overrides("config", c.values().at("config"));
  for (const auto& item : overrides.values().items()) merged[item.key()] = item.value();
  job.config = Config(job.config.source(), merged);
}

// Unquoted in YAML, 2.4 is a number.
Version version_at(const Config& c, const char* key) {
  const nlohmann::json& v = c.values().at(key);
  return parse_version(key, v.is_string() ? v.get<std::string>() : v.dump());
}

template <AdapterKind kind>
void apply_adapter(Job& job, const Config& c) {
  const nlohmann::json& value = c.values().at(to_string(kind));
  std::optional<AdapterSettings>& adapter = job.tuning.adapter;
  if (value == false || value.is_null()) {
    if (adapter && adapter->kind == kind) adapter.reset();
    return;
  }
  if (adapter && adapter->kind != kind)
    throw Error(fmt::format("[{}] the job has {} already", to_string(kind), to_string(adapter->kind)), "choose one kind of adapter");
  adapter = parse_adapter(kind, value);
}

void apply_quantization(Job& job, const Config& c) {
  const nlohmann::json& value = c.values().at("quantization");
  job.tuning.quantization.reset();
  if (value != false && value != "none" && !value.is_null()) job.tuning.quantization = parse_quantization(value);
}

// A plain truth value would leave the number of processes open; false and null undo what a file says.
template <class T>
void apply_parallel(std::optional<T>& slot, const nlohmann::json& value, T (*parse)(const nlohmann::json&)) {
  slot.reset();
  if (value != false && !value.is_null()) slot = parse(value);
}

void apply_optimizer_args(Job& job, const Config& c) { job.optimizer.args = Config("optimizer args", c.values().at("optimizer_args")); }

std::vector<Setting> all_settings() {
  std::vector<Setting> settings{
      {"model", "NAME|FILE|DIR", "a preset or family name, a config.json, or a directory that has one",
       [](Job& j, const Config& c) { j.model = c.text({"model"}, j.model); }},
      {"config", "{KEY: VALUE}", "overrides of the model's own configuration, e.g. {num_hidden_layers: 8}", apply_config},
      {"batch", "N", "samples per device and micro-step", [](Job& j, const Config& c) { j.batch = c.size({"batch"}, 1); }},
      {"seq", "N", "tokens per sample, the side of an image, or the length of a vector",
       [](Job& j, const Config& c) { j.seq = c.size({"seq"}, 1); }},
      {"lengths", "[N]", "tokens of each sample of the batch; the flag: 512+301+77",
       [](Job& j, const Config& c) { j.collation.lengths = parse_lengths(c.values().at("lengths")); }},
      {"collate", "pad|pack", "rows of the longest sample with a mask (default), or one row of all samples",
       [](Job& j, const Config& c) { j.collation.collate = parse_collate(c.text({"collate"}, "pad")); }},
      {"padding", "none|ones|mask", "the attention_mask that the model is given: none, one of ones, one with padded tokens",
       [](Job& j, const Config& c) {
         j.collation.padding = parse_padding(c.text({"padding"}, "none"));
         j.collation.padding_given = true;
       }},
      {"pad_to_multiple_of", "N", "rows are padded to a multiple of so many tokens",
       [](Job& j, const Config& c) { j.collation.pad_to_multiple_of = c.size({"pad_to_multiple_of"}, 1); }},
      {"inputs", "lm|cls|image|pair|vector|own", "what a sample is; the model's own kind by default",
       [](Job& j, const Config& c) { j.inputs = parse_inputs(c.text({"inputs"}, "lm")); }},
      {"precision", "fp32|amp|amp-fp16|bf16|fp16", "fp32; fp32 weights under bf16 or fp16 autocast; everything in bf16 or fp16",
       [](Job& j, const Config& c) { j.precision = parse_precision(c.text({"precision"}, "amp")); }},
      {"autocast", "", "autocast over weights in bf16 or fp16, too (the HF Trainer's bf16 with a model loaded in bf16)",
       [](Job& j, const Config& c) { j.autocast = c.flag({"autocast"}, false); }},
      {"lora", "{KEY: VALUE}",
       "LoRA as PEFT does it, e.g. {r: 16, target_modules: [q_proj, v_proj]}; the flag: r=16,target_modules=q_proj+v_proj",
       apply_adapter<AdapterKind::lora>},
      {"lokr", "{KEY: VALUE}", "LoKr as PEFT does it, e.g. {r: 8, target_modules: all-linear}", apply_adapter<AdapterKind::lokr>},
      {"ia3", "{KEY: VALUE}", "IA3 as PEFT does it; {} takes its targets for the family", apply_adapter<AdapterKind::ia3>},
      {"ln_tuning", "{KEY: VALUE}", "train copies of the norms, as PEFT does it", apply_adapter<AdapterKind::ln_tuning>},
      {"quantization", "nf4|fp4|int8|gptq|{KEY: VALUE}",
       "the base in bitsandbytes' types, or a checkpoint of GPTQ, e.g. {type: nf4, double_quant: true, compute_dtype: bf16}; nf4-bf16 "
       "under FSDP",
       apply_quantization},
      {"frozen", "[NAME]", "modules that are not trained, by the end of their name; the flag: a+b",
       [](Job& j, const Config& c) { j.tuning.frozen = parse_name_list(c.values().at("frozen"), "frozen"); }},
      {"trainable", "[NAME]", "the only modules that are trained, by the end of their name",
       [](Job& j, const Config& c) { j.tuning.trainable = parse_name_list(c.values().at("trainable"), "trainable"); }},
      {"attention", "auto|flash|efficient|math|eager|flash-attention-2",
       "the attention kernel; auto is what CUDA takes, flash-attention-2 the library of that name",
       [](Job& j, const Config& c) { j.attention = parse_attention(c.text({"attention"}, "auto")); }},
      {"checkpointing", "=full|every=K|modules=A+B|save=matmuls|reentrant=true",
       "recompute blocks (or the modules named) in backward; save: but not what these ops return",
       [](Job& j, const Config& c) { j.checkpointing = parse_checkpointing(c.values().at("checkpointing")); }},
      {"offload_activations", "=pinned|pageable", "keep for backward in the host's memory (torch.autograd.graph.save_on_cpu)",
       [](Job& j, const Config& c) { j.offload_activations = parse_offload(c.values().at("offload_activations"), "offload_activations"); }},
      {"loss", "model|logits-sum", "the model's own loss, or the sum of its logits as benchmarks take it",
       [](Job& j, const Config& c) { j.loss = parse_loss(c.text({"loss"}, "model")); }},
      {"loss_kernel", "model|liger|chunked|chunked-output|cut",
       "the cross-entropy of a causal model: its own, Liger's fused one, torchtune's two, Apple's cut-cross-entropy",
       [](Job& j, const Config& c) { j.loss_settings.kernel = parse_loss_kernel(c.text({"loss_kernel"}, "model")); }},
      {"loss_chunks", "N", "chunks of loss_kernel chunked and chunked-output (default 8)",
       [](Job& j, const Config& c) { j.loss_settings.chunks = c.size({"loss_chunks"}, 8); }},
      {"liger_kernels", "[NAME]", "layers that Liger's kernels replace: rope, rms_norm, swiglu, all; the flag: rope+rms_norm",
       [](Job& j, const Config& c) { j.loss_settings.liger = parse_liger_kernels(c.values().at("liger_kernels")); }},
      {"optimizer", "NAME", "as in torch.optim: AdamW, Adam, SGD, Adafactor, ...; none: forward and backward alone", apply_optimizer},
      {"optimizer_args", "{KEY: VALUE}", "the optimizer's arguments, e.g. {fused: true} or {momentum: 0.9}", apply_optimizer_args},
      {"accumulation", "N", "micro-steps per optimizer step",
       [](Job& j, const Config& c) { j.accumulation = c.size({"accumulation"}, 1); }},
      {"clip", "NORM", "clip the gradients' norm before the update",
       [](Job& j, const Config& c) {
         j.clip = c.number({"clip"}, 1.0);
         if (!(*j.clip > 0)) throw Error(fmt::format("[job] clip {} is not above 0", *j.clip), "leave it out for no clipping");
       }},
      {"ema", "", "keep an exponential moving average of the weights on the device",
       [](Job& j, const Config& c) { j.ema = c.flag({"ema"}, false); }},
      {"offload_optimizer", "=gradients=true",
       "states on the host, where weights are updated, and perhaps gradients (torchao's CPUOffloadOptimizer)",
       [](Job& j, const Config& c) { j.offload_optimizer = parse_optimizer_offload(c.values().at("offload_optimizer")); }},
      {"swap_blocks", "N", "frozen weights of so many blocks are on the host and take turns on the device (kohya's blocks_to_swap)",
       [](Job& j, const Config& c) { j.swap_blocks = c.size({"swap_blocks"}, 1); }},
      {"optimizer_in_backward", "", "update each parameter in backward and drop its gradient at once (torchtune's optimizer_in_bwd)",
       [](Job& j, const Config& c) { j.optimizer_in_backward = c.flag({"optimizer_in_backward"}, false); }},
      {"master_weights", "none|fp32", "fp32 copies of bf16 or fp16 weights that the optimizer updates, as Megatron-LM keeps them",
       [](Job& j, const Config& c) { j.master_weights = parse_master_weights(c.text({"master_weights"}, "none")); }},
      {"gradient_dtype", "weights|fp32|bf16|fp16", "with master_weights: the type gradients are summed in (default: as the weights)",
       [](Job& j, const Config& c) { j.gradient_dtype = parse_gradient_type(c.text({"gradient_dtype"}, "weights")); }},
      {"loss_scaling", "true|false", "torch.amp.GradScaler with amp-fp16 (default true)",
       [](Job& j, const Config& c) { j.loss_scaling = c.flag({"loss_scaling"}, true); }},
      {"drop_output", "", "the loop drops the model's output before backward (the HF Trainer does)",
       [](Job& j, const Config& c) { j.drop_output = c.flag({"drop_output"}, false); }},
      {"drop_after", "", "the loop drops output and loss after backward",
       [](Job& j, const Config& c) { j.drop_after = c.flag({"drop_after"}, false); }},
      {"zero_grad", "after-step|before-forward|before-backward", "when the loop drops the last step's gradients",
       [](Job& j, const Config& c) { j.zero_grad = parse_zero_grad(c.text({"zero_grad"}, "after-step")); }},
      {"longest", "N", "tokens of the longest sample of the data, when --seq is the usual length",
       [](Job& j, const Config& c) { j.longest = c.size({"longest"}, 1); }},
      {"eval_batch", "N", "samples per device in evaluation (default: as in training)",
       [](Job& j, const Config& c) { j.eval_batch = c.size({"eval_batch"}, 1); }},
      {"sample_tokens", "N", "new tokens per prompt that generation makes between steps",
       [](Job& j, const Config& c) { j.sampling.tokens = c.size({"sample_tokens"}, 1); }},
      {"sample_batch", "N", "prompts that are generated from at once (default 1)",
       [](Job& j, const Config& c) { j.sampling.batch = c.size({"sample_batch"}, 1); }},
      {"sample_prompt", "N", "tokens of such a prompt (default 32)",
       [](Job& j, const Config& c) { j.sampling.prompt = c.size({"sample_prompt"}, 1); }},
      {"ddp", "{KEY: VALUE}", "DistributedDataParallel, e.g. {world: 8, bucket_view: true}; the flag: world=8,bucket_view=true",
       [](Job& j, const Config& c) { apply_parallel(j.parallel.ddp, c.values().at("ddp"), parse_ddp); }},
      {"zero1", "{KEY: VALUE}", "ZeroRedundancyOptimizer (ZeRO stage 1) on one rank, e.g. {world: 8, rank: 0}",
       [](Job& j, const Config& c) { apply_parallel(j.parallel.zero1, c.values().at("zero1"), parse_zero1); }},
      {"fsdp", "{KEY: VALUE}",
       "fully_shard (FSDP2) on one rank, e.g. {world: 8, param_dtype: bf16, reduce_dtype: fp32}; replicas above 1: HSDP",
       [](Job& j, const Config& c) { apply_parallel(j.parallel.fsdp, c.values().at("fsdp"), parse_fsdp); }},
      {"fsdp1", "{KEY: VALUE}",
       "FullyShardedDataParallel (FSDP1) on one rank, e.g. {world: 8, strategy: full_shard, param_dtype: bf16, reduce_dtype: fp32}",
       [](Job& j, const Config& c) { apply_parallel(j.parallel.fsdp1, c.values().at("fsdp1"), parse_fsdp1); }},
      {"zero", "{KEY: VALUE}",
       "DeepSpeed's ZeRO stage 1, 2 or 3 on one rank, e.g. {world: 8, stage: 3, offload_optimizer: true, reduce_bucket: 5e8}",
       [](Job& j, const Config& c) { apply_parallel(j.parallel.deepspeed, c.values().at("zero"), parse_deepspeed); }},
      {"tensor_parallel", "{KEY: VALUE}", "layers sharded over ranks, e.g. {world: 4, sequence: true}",
       [](Job& j, const Config& c) { apply_parallel(j.parallel.tensor, c.values().at("tensor_parallel"), parse_tensor_parallel); }},
      {"megatron", "{KEY: VALUE}",
       "Megatron-LM's layers, buffers and schedule on the largest rank, e.g. {world: 64, tensor: 8, pipeline: 4, sequence: true}",
       [](Job& j, const Config& c) { apply_parallel(j.parallel.megatron, c.values().at("megatron"), parse_megatron); }},
      {"torchtitan", "{KEY: VALUE}",
       "torchtitan's own model code and trainer on the largest rank, e.g. {world: 64, tensor: 8}, with pipeline and context, too",
       [](Job& j, const Config& c) { apply_parallel(j.parallel.torchtitan, c.values().at("torchtitan"), parse_torchtitan); }},
      {"compile", "", "torch.compile: not executed but enclosed, between the eager run and one that keeps only matrix products",
       [](Job& j, const Config& c) { j.compile = c.flag({"compile"}, false); }},
      {"alloc_conf", "TEXT", "PYTORCH_CUDA_ALLOC_CONF, e.g. expandable_segments:True",
       [](Job& j, const Config& c) { j.alloc_conf = c.text({"alloc_conf"}, ""); }},
      {"torch", "VERSION", "PyTorch's version, which decides about some workspaces (default 2.14)",
       [](Job& j, const Config& c) { j.platform.torch = version_at(c, "torch"); }},
      {"transformers", "VERSION", "transformers' version: before 4.48 attention and its cache were other code (default 5.12)",
       [](Job& j, const Config& c) { j.platform.transformers = version_at(c, "transformers"); }},
      {"steps", "N", "steps to simulate (default 2: the first differs from the steady state)",
       [](Job& j, const Config& c) {
         j.steps = c.size({"steps"}, 2);
         if (j.steps > 100)
           throw Error(fmt::format("[job] steps {} is more than 100", j.steps), "the second step is already the steady state");
       }},
  };
  for (Setting& s : jax_setting_entries()) settings.push_back(std::move(s));
  const auto after_ema = std::find_if(settings.begin(), settings.end(), [](const Setting& s) { return s.key == std::string("ema"); }) + 1;
  const std::vector<Setting> ema = ema_setting_entries();
  settings.insert(after_ema, ema.begin(), ema.end());
  for (Setting& s : host_setting_entries()) settings.push_back(std::move(s));
  return settings;
}

}  // namespace

const std::vector<Setting>& job_settings() {
  static const std::vector<Setting> kSettings = all_settings();
  return kSettings;
}

std::string flag_of(const Setting& s) {
  std::string flag = std::string("--") + s.key;
  for (char& c : flag)
    if (c == '_') c = '-';
  return flag;
}

void apply_setting(Job& job, const std::string& key, const nlohmann::json& value, const std::string& origin) {
  std::vector<std::string> keys;
  for (const Setting& s : job_settings()) {
    keys.emplace_back(s.key);
    if (key != s.key) continue;
    s.apply(job, Config(origin, {{key, value}}));
    job.origin[key] = origin;
    return;
  }
  throw Error(fmt::format("[{}] setting '{}' is not known", origin, key), did_you_mean(key, keys));
}

nlohmann::json parse_scalar(const std::string& text) {
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (text == "null" || text == "None" || text == "~") return nullptr;
  const char* end = text.data() + text.size();
  int64_t whole = 0;
  if (auto r = std::from_chars(text.data(), end, whole); r.ec == std::errc() && r.ptr == end) return whole;
  double number = 0;
  if (auto r = std::from_chars(text.data(), end, number); r.ec == std::errc() && r.ptr == end) return number;
  return text;
}

}  // namespace plimsoll
