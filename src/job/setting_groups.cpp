#include "job/setting_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "job/fields.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Printed = nlohmann::ordered_json;

constexpr Programs kBoth = Programs::both;

// A text is the name alone; args of the optimizer before were another's.
void read_optimizer(Job& job, const Config& c) {
  const nlohmann::json* v = c.find({"optimizer"});
  if (!v) return;
  if (v->is_string()) {
    if (job.optimizer.name != v->get<std::string>()) job.optimizer.args = Config();
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

Config parse_optimizer_args(const nlohmann::json& value) { return Config("optimizer args", value); }

// Keys that were set before stay.
void merge_config(Job& job, const Config& c) {
  nlohmann::json merged = job.config.values();
  const Config overrides("config", c.values().at("config"));
  for (const auto& item : overrides.values().items()) merged[item.key()] = item.value();
  job.config = Config(job.config.source(), merged);
}

bool parse_master_weights(const std::string& text) {
  if (text == "fp32") return true;
  if (text == "none" || text == "false") return false;
  throw Error("[job] master_weights '" + text + "' is not known", "known: none, fp32");
}

template <AdapterKind kind>
Field<Job> adapter() {
  return {to_string(kind),
          [](Job& job, const Config& c) {
            const nlohmann::json& value = c.values().at(to_string(kind));
            std::optional<AdapterSettings>& adapter = job.tuning.adapter;
            if (value == false || value.is_null()) {
              if (adapter && adapter->kind == kind) adapter.reset();
              return;
            }
            if (adapter && adapter->kind != kind)
              throw Error(fmt::format("[{}] the job has {} already", to_string(kind), to_string(adapter->kind)),
                          "choose one kind of adapter");
            adapter = parse_adapter(kind, value);
          },
          [](const Job& job) {
            const std::optional<AdapterSettings>& a = job.tuning.adapter;
            return a && a->kind == kind ? to_json(*a) : Printed(nullptr);
          }};
}

std::optional<QuantizationSettings> parse_base(const nlohmann::json& value) {
  if (value == false || value == "none") return std::nullopt;
  return parse_quantization(value);
}

// What was said beside it wins: qlora fills in.
void read_qlora(Job& job, const Config& c) {
  if (!c.flag({"qlora"}, false)) return;
  if (!job.origin.contains("lora")) {
    adapter<AdapterKind::lora>().read(job, Config(c.source(), {{"lora", true}}));
    job.origin["lora"] = c.source();
  }
  if (!job.origin.contains("quantization")) {
    job.tuning.quantization = parse_quantization("nf4");
    job.origin["quantization"] = c.source();
  }
}

// A request reads it before all others (api/request.cpp); here it is in the wrong place.
void refuse_like(Job&, const Config& c) {
  throw Error(fmt::format("[{}] like {} in a job file", c.source(), printable(c.text({"like"}, ""), 40)),
              "a job file says its own recipe; --like is for a model that is named alone: plimsoll estimate llama-3.1-8b --like trl");
}

Printed print_base(const std::optional<QuantizationSettings>& q) { return q ? to_json(*q) : Printed(nullptr); }

// How the padding follows from lengths is not known here, so what nobody gave is null.
Field<Job> padding() {
  return {"padding",
          [](Job& j, const Config& c) {
            j.collation.padding = parse_padding(c.text({"padding"}, "none"));
            j.collation.padding_given = c.find({"padding"}) != nullptr;
          },
          [](const Job& j) { return j.collation.padding_given ? Printed(to_string(j.collation.padding)) : Printed(nullptr); }};
}

Printed print_lengths(const std::vector<int64_t>& lengths) { return lengths.empty() ? Printed(nullptr) : Printed(lengths); }

Printed print_liger(const LigerKernels& liger) {
  Printed names = Printed::array();
  if (liger.rope) names.push_back("rope");
  if (liger.rms_norm) names.push_back("rms_norm");
  if (liger.swiglu) names.push_back("swiglu");
  return names;
}

std::optional<double> read_clip(const Config& c, const char* key, const std::optional<double>& none) {
  if (!c.find({key})) return none;
  const double clip = c.number({key}, 1.0);
  if (!(clip > 0)) throw Error(fmt::format("[job] clip {} is not above 0", clip), "leave it out for no clipping");
  return clip;
}

Printed print_clip(const std::optional<double>& clip) { return clip ? Printed(*clip) : Printed(nullptr); }

Printed print_offload(const std::optional<OptimizerOffload>& o) { return o ? to_json(*o) : Printed(false); }

// 0 turns off an evaluation that a file has.
int64_t parse_eval_batch(const Config& c, const char* key, int64_t) { return c.integer({key}, 0) == 0 ? 0 : c.size({key}, 1); }

void read_steps(Job& j, const Config& c) {
  j.steps = c.size({"steps"}, 2);
  if (j.steps > 100) throw Error(fmt::format("[job] steps {} is more than 100", j.steps), "the second step is already the steady state");
}

constexpr const char* kSizeExample = "e.g. --size side=384: `plimsoll explain FILE.trace` lists the names";

using Sizes = std::map<std::string, int64_t>;

Sizes parse_sizes(const nlohmann::json& value) {
  const nlohmann::json named = value.is_string() ? read_pairs(split_at(value.get<std::string>(), ','), "size", kSizeExample) : value;
  if (!named.is_object()) throw Error(fmt::format("[size] {} is not a mapping", dump(named).substr(0, 80)), kSizeExample);
  const Config fields("size", named);
  Sizes out;
  for (const auto& item : fields.values().items()) out[item.key()] = fields.size({item.key().c_str()}, 0);
  return out;
}

Printed print_sizes(const Sizes& sizes) { return sizes.empty() ? Printed(nullptr) : Printed(sizes); }

}  // namespace

std::vector<Setting> model_settings() {
  return {
      {field::text("model", &Job::model), "NAME|FILE|DIR", "a preset or family name, a config.json, or a directory that has one", kBoth},
      {{"config", merge_config, [](const Job& j) { return Printed(j.config.values()); }},
       "{KEY: VALUE}",
       "overrides of the model's own configuration, e.g. {num_hidden_layers: 8}",
       kBoth},
      {{"like", refuse_like},
       "trl|axolotl|llama-factory|unsloth|torchtune|kohya|ai-toolkit|trainer",
       "that trainer's defaults for whatever is not given; for a model that is named alone (docs/like.md)"},
  };
}

std::vector<Setting> batch_settings() {
  return {
      {field::size("batch", &Job::batch), "N", "samples per device and micro-step", kBoth},
      {field::size_or_none("seq", &Job::seq), "N", "tokens per sample, the side of an image, or the length of a vector", kBoth},
      {field::parsed("lengths", parse_lengths, print_lengths, &Job::collation, &Collation::lengths), "[N]",
       "tokens of each sample of the batch; the flag: 512+301+77"},
      {field::word("collate", parse_collate, &Job::collation, &Collation::collate), "pad|pack",
       "rows of the longest sample with a mask (default), or one row of all samples"},
      {padding(), "none|ones|mask", "the attention_mask that the model is given: none, one of ones, one with padded tokens"},
      {field::size("pad_to_multiple_of", &Job::collation, &Collation::pad_to_multiple_of), "N",
       "rows are padded to a multiple of this many tokens"},
      {field::parsed("size", parse_sizes, print_sizes, &Job::sizes), "{KEY: VALUE}",
       "of a captured program: its sizes beside batch and seq, e.g. {side: 384}; the flag: side=384,frames=16"},
      {field::word("inputs", parse_inputs, &Job::inputs), "lm|cls|image|pair|vector|own",
       "what a sample is; the model's own kind by default", kBoth},
  };
}

std::vector<Setting> precision_settings() {
  return {
      {field::word("precision", parse_precision, &Job::precision), "fp32|amp|amp-fp16|bf16|fp16",
       "fp32; fp32 weights under bf16 or fp16 autocast; everything in bf16 or fp16", kBoth},
      {field::flag("autocast", &Job::autocast), "",
       "autocast over weights in bf16 or fp16, too (the HF Trainer's bf16 with a model loaded in bf16)"},
  };
}

std::vector<Setting> adapter_settings() {
  return {
      {adapter<AdapterKind::lora>(), "={KEY: VALUE}",
       "LoRA as PEFT does it, e.g. {r: 16, target_modules: [q_proj, v_proj]}; the flag: r=16,target_modules=q_proj+v_proj; without a "
       "value: r 16 on all linear layers"},
      {{"qlora", read_qlora}, "", "LoRA on a base in nf4; lora without a value and quantization nf4, as far as they are not given"},
      {adapter<AdapterKind::lokr>(), "{KEY: VALUE}", "LoKr as PEFT does it, e.g. {r: 8, target_modules: all-linear}"},
      {adapter<AdapterKind::ia3>(), "{KEY: VALUE}", "IA3 as PEFT does it; {} takes its targets for the family"},
      {adapter<AdapterKind::ln_tuning>(), "{KEY: VALUE}", "train copies of the norms, as PEFT does it"},
      {field::parsed("quantization", parse_base, print_base, &Job::tuning, &TuningSettings::quantization), "nf4|fp4|int8|gptq|{KEY: VALUE}",
       "the base in bitsandbytes' types, or a checkpoint of GPTQ, e.g. {type: nf4, double_quant: true, compute_dtype: bf16}; nf4-bf16 "
       "under FSDP"},
      {field::names("frozen", &Job::tuning, &TuningSettings::frozen), "[NAME]",
       "modules that are not trained, by the end of their name; the flag: a+b", kBoth},
      {field::names("trainable", &Job::tuning, &TuningSettings::trainable), "[NAME]",
       "the only modules that are trained, by the end of their name", kBoth},
  };
}

std::vector<Setting> activation_settings() {
  const auto parse_activations = [](const nlohmann::json& value) { return parse_offload(value, "offload_activations"); };
  return {
      {field::word("attention", parse_attention, &Job::attention), "auto|flash|efficient|math|eager|flash-attention-2",
       "the attention kernel; auto is what CUDA takes, flash-attention-2 the library of that name", kBoth},
      {field::parsed(
           "checkpointing", parse_checkpointing, [](const Checkpointing& c) { return to_json(c); }, &Job::checkpointing),
       "=full|every=K|modules=A+B|save=matmuls|reentrant=true",
       "recompute blocks (or the modules named) in backward; save: but not what these ops return", kBoth},
      {field::parsed(
           "offload_activations", parse_activations, [](Offload o) { return to_string(o); }, &Job::offload_activations),
       "=pinned|pageable", "keep for backward in the host's memory (torch.autograd.graph.save_on_cpu)"},
  };
}

std::vector<Setting> loss_settings() {
  return {
      {field::word("loss", parse_loss, &Job::loss), "model|logits-sum",
       "the model's own loss, or the sum of its logits as benchmarks take it", kBoth},
      {field::word("loss_kernel", parse_loss_kernel, &Job::loss_settings, &LossSettings::kernel), "model|liger|chunked|chunked-output|cut",
       "the cross-entropy of a causal model: its own, Liger's fused one, torchtune's two, Apple's cut-cross-entropy"},
      {field::size("loss_chunks", &Job::loss_settings, &LossSettings::chunks), "N",
       "chunks of loss_kernel chunked and chunked-output (default 8)"},
      {field::parsed("liger_kernels", parse_liger_kernels, print_liger, &Job::loss_settings, &LossSettings::liger), "[NAME]",
       "layers that Liger's kernels replace: rope, rms_norm, swiglu, all; the flag: rope+rms_norm"},
  };
}

std::vector<Setting> optimizer_settings() {
  std::vector<Setting> out{
      {{"optimizer", read_optimizer, [](const Job& j) { return Printed(j.optimizer.name); }},
       "NAME",
       "as in torch.optim: AdamW, Adam, SGD, Adafactor, ...; none: forward and backward alone",
       kBoth},
      {field::parsed(
           "optimizer_args", parse_optimizer_args, [](const Config& c) { return c.values(); }, &Job::optimizer, &OptimizerSpec::args),
       "{KEY: VALUE}", "the optimizer's arguments, e.g. {fused: true} or {momentum: 0.9}", kBoth},
      {field::size("accumulation", &Job::accumulation), "N", "micro-steps per optimizer step", kBoth},
      {field::member("clip", read_clip, print_clip, &Job::clip), "NORM", "clip the gradients' norm before the update", kBoth},
      {field::flag("ema", &Job::ema), "", "keep an exponential moving average of the weights on the device", kBoth},
      {field::parsed("offload_optimizer", parse_optimizer_offload, print_offload, &Job::offload_optimizer), "=gradients=true",
       "states on the host, where weights are updated, and perhaps gradients (torchao's CPUOffloadOptimizer)"},
      {field::size_or_none("swap_blocks", &Job::swap_blocks), "N",
       "frozen weights of this many blocks stay on the host and take turns on the device (kohya's blocks_to_swap)"},
      {field::flag("optimizer_in_backward", &Job::optimizer_in_backward), "",
       "update each parameter in backward and drop its gradient at once (torchtune's optimizer_in_bwd)"},
      {field::member(
           "master_weights",
           [](const Config& c, const char* key, bool usual) { return parse_master_weights(c.text({key}, usual ? "fp32" : "none")); },
           [](bool on) { return on ? "fp32" : "none"; }, &Job::master_weights),
       "none|fp32", "fp32 copies of bf16 or fp16 weights that the optimizer updates, as Megatron-LM keeps them"},
      {field::word("gradient_dtype", parse_gradient_type, &Job::gradient_dtype), "weights|fp32|bf16|fp16",
       "with master_weights: the type gradients are summed in (default: as the weights)"},
      {field::flag("loss_scaling", &Job::loss_scaling), "true|false", "torch.amp.GradScaler with amp-fp16 (default true)"},
  };
  const auto after_ema = std::find_if(out.begin(), out.end(), [](const Setting& s) { return s.key == std::string_view("ema"); }) + 1;
  const std::vector<Setting> ema = ema_setting_entries();
  out.insert(after_ema, ema.begin(), ema.end());
  return out;
}

std::vector<Setting> loop_settings() {
  return {
      {field::flag("drop_output", &Job::drop_output), "", "the loop drops the model's output before backward (the HF Trainer does)"},
      {field::flag("drop_after", &Job::drop_after), "", "the loop drops output and loss after backward"},
      {field::word("zero_grad", parse_zero_grad, &Job::zero_grad), "after-step|before-forward|before-backward",
       "when the loop drops the last step's gradients"},
      {field::size_or_none("longest", &Job::longest), "N", "tokens of the longest sample of the data, when --seq is the usual length"},
      {field::member("eval_batch", parse_eval_batch, field::kAsItIs, &Job::eval_batch), "N",
       "an evaluation follows the steps, with this many samples per device; 0: none (default: none, or as the trainer does)"},
      {field::size_or_none("sample_tokens", &Job::sampling, &Sampling::tokens), "N",
       "new tokens per prompt that generation makes between steps"},
      {field::size("sample_batch", &Job::sampling, &Sampling::batch), "N", "prompts that are generated from at once (default 1)"},
      {field::size("sample_prompt", &Job::sampling, &Sampling::prompt), "N", "tokens of such a prompt (default 32)"},
      {{"steps", read_steps, [](const Job& j) { return Printed(j.steps); }},
       "N",
       "steps to simulate (default 2: the first differs from the steady state)"},
  };
}

std::vector<Setting> parallel_settings() {
  constexpr auto kParallel = &Job::parallel;
  using P = ParallelSettings;
  return {
      {field::part("ddp", parse_ddp, kParallel, &P::ddp), "{KEY: VALUE}",
       "DistributedDataParallel, e.g. {world: 8, bucket_view: true}; the flag: world=8,bucket_view=true"},
      {field::part("zero1", parse_zero1, kParallel, &P::zero1), "{KEY: VALUE}",
       "ZeroRedundancyOptimizer (ZeRO stage 1) on one rank, e.g. {world: 8, rank: 0}"},
      {field::part("fsdp", parse_fsdp, kParallel, &P::fsdp), "{KEY: VALUE}",
       "fully_shard (FSDP2) on one rank, e.g. {world: 8, param_dtype: bf16, reduce_dtype: fp32}; replicas above 1: HSDP"},
      {field::part("fsdp1", parse_fsdp1, kParallel, &P::fsdp1), "{KEY: VALUE}",
       "FullyShardedDataParallel (FSDP1) on one rank, e.g. {world: 8, strategy: full_shard, param_dtype: bf16, reduce_dtype: fp32}"},
      {field::part("zero", parse_deepspeed, kParallel, &P::deepspeed), "{KEY: VALUE}",
       "DeepSpeed's ZeRO stage 1, 2 or 3 on one rank, e.g. {world: 8, stage: 3, offload_optimizer: true, reduce_bucket: 5e8}"},
      {field::part("tensor_parallel", parse_tensor_parallel, kParallel, &P::tensor), "{KEY: VALUE}",
       "layers sharded over ranks, e.g. {world: 4, sequence: true}"},
      {field::part("megatron", parse_megatron, &Job::program, &ProgramSettings::megatron), "{KEY: VALUE}",
       "Megatron-LM's layers, buffers and schedule on the largest rank, e.g. {world: 64, tensor: 8, pipeline: 4, sequence: true}"},
      {field::part("torchtitan", parse_torchtitan, &Job::program, &ProgramSettings::torchtitan), "{KEY: VALUE}",
       "torchtitan's own model code and trainer on the largest rank, e.g. {world: 64, tensor: 8}, with pipeline and context, too"},
  };
}

}  // namespace plimsoll
