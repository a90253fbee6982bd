// The settings of a run as the `job` of an answer has them, with the keys of those that are mappings themselves.
#include "job/settings.h"

#include <algorithm>
#include <map>
#include <set>

#include "api/schemas/parts.h"
#include "util/text.h"

namespace plimsoll::shape {

namespace {

// The words of "fp32|amp|bf16"; none where the value is more than a word.
std::vector<std::string> words_of(const Setting& s) {
  std::vector<std::string> words = split_at(s.value, '|');
  const auto plain = [](const std::string& w) {
    return !w.empty() &&
           std::all_of(w.begin(), w.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; });
  };
  return words.size() > 1 && std::all_of(words.begin(), words.end(), plain) ? words : std::vector<std::string>{};
}

Shape module_names(const char* meaning) { return one_of({texts(""), text("")}, std::string(meaning) + ": a list, or a pattern"); }
Shape wire(const char* meaning) { return word({"own", "fp32", "bf16", "fp16"}, meaning); }
Shape layers() { return list(integer("layers"), "layers of every stage; left out: equal parts"); }

ShapeMembers adapter_keys() {
  return {{"target_modules", null_or(module_names("modules that get an adapter; null: PEFT's for the family"))},
          {"exclude_modules", module_names("modules that get none"), kSometimes},
          {"modules_to_save", texts("modules that are trained in full beside the adapters")},
          {"task_type", word({"SEQ_CLS"}, "with it PEFT trains the classifier in full, too"), kSometimes},
          {"dtype", word({"fp32", "base"}, "the type of adapters of a base in half precision")}};
}

ShapeMembers rank_keys() {
  return {{"r", integer("the rank")},
          {"rank_pattern", map(integer("its rank"), "modules with a rank of their own"), kSometimes},
          {"layers_to_transform", list(integer("a layer, from 0"), "the only layers that get adapters"), kSometimes},
          {"layers_pattern", texts("what the list of layers is called"), kSometimes},
          {"alpha", number("scale of the adapters, which costs no memory")}};
}

ShapeMembers lora_keys() {
  return adapter_keys() + rank_keys() +
         ShapeMembers{{"dropout", number("share of an adapter's input that is dropped")},
                      {"use_dora", flag("DoRA: magnitudes are trained as well")},
                      {"implementation", word({"ai-toolkit"}, "whose code it is; left out: PEFT's"), kSometimes},
                      {"bias", word({"none", "all", "lora_only"}, "which biases are trained")}};
}

ShapeMembers lokr_keys() {
  return adapter_keys() + rank_keys() +
         ShapeMembers{{"decompose_both", flag("the left factor is decomposed as well")},
                      {"decompose_factor", integer("size of the left factor; -1: PEFT chooses")}};
}

ShapeMembers ia3_keys() {
  return adapter_keys() +
         ShapeMembers{{"feedforward_modules", module_names("targets whose input is scaled instead of their output"), kSometimes}};
}

ShapeMembers quantization_keys() {
  return {{"type", text("nf4, fp4, int8, gptq and others: docs/adapters.md")},
          {"double_quant", flag("the scales are quantised as well"), kSometimes},
          {"compute_dtype", word({"bf16", "fp16", "fp32"}, "the type that weights are unpacked to"), kSometimes},
          {"threshold", number("of int8: larger values count as outliers; 0: none are looked for"), kSometimes},
          {"outliers", integer("of int8: columns with outliers"), kSometimes},
          {"skip_modules", texts("modules that are not quantised")},
          {"prepare", flag("prepare_model_for_kbit_training: what is not quantised goes to fp32")}};
}

ShapeMembers checkpointing_keys() {
  return {{"every", integer("one block in this many is recomputed"), kSometimes},
          {"modules", texts("modules that are recomputed"), kSometimes},
          {"reentrant", flag("use_reentrant of torch.utils.checkpoint"), kSometimes},
          {"save", texts("ops whose results are kept"), kSometimes}};
}

ShapeMembers ddp_keys() {
  return {{"world", integer("number of processes")},
          {"bucket_mb", null_or(number("bucket_cap_mb, in MiB; null: 1 for the first bucket, then 25"))},
          {"bucket_view", flag("gradient_as_bucket_view: gradients are views of the buckets")},
          {"find_unused_parameters", flag("buckets are not rebuilt, and outputs are cloned in every forward")},
          {"static_graph", flag("outputs are cloned in the first forward; buckets are rebuilt after the second backward")},
          {"broadcast_buffers", flag("buffers are sent in flat copies before each forward")},
          {"no_sync", flag("with accumulation, all micro-steps but the last are under no_sync()")}};
}

ShapeMembers zero1_keys() {
  return {{"world", integer("number of processes")},
          {"rank", integer("the rank that is asked about; 0 stands for the largest")},
          {"ddp", flag("gradients are reduced by DistributedDataParallel")},
          {"parameter_view", flag("parameters_as_bucket_view")}};
}

ShapeMembers fsdp_keys() {
  return {{"world", integer("number of processes")},
          {"replicas", integer("copies of the weights; above 1: HSDP")},
          {"rank", integer("the rank that is asked about, among those that share a copy")},
          {"reshard", one_of({flag(""), integer("")}, "reshard_after_forward of the blocks: whether, or the size of smaller groups")},
          {"reshard_root", flag("reshard_after_forward of the model itself"), kSometimes},
          {"param_dtype", wire("MixedPrecisionPolicy's param_dtype")},
          {"reduce_dtype", wire("MixedPrecisionPolicy's reduce_dtype")},
          {"no_sync", flag("with accumulation, gradients stay whole until the last micro-step")},
          {"wrap_embedding", flag("fully_shard on the input embedding, too")},
          {"checkpoint_inside", flag("checkpoints are inside the sharded blocks")},
          {"keep_last", flag("the last group stays whole after forward")}};
}

ShapeMembers fsdp1_keys() {
  return {{"world", integer("number of processes")},
          {"replicas", integer("copies of the weights, of hybrid strategies")},
          {"strategy", word({"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"}, "ShardingStrategy")},
          {"rank", integer("the rank that is asked about, among those that share a copy")},
          {"param_dtype", wire("MixedPrecision's param_dtype")},
          {"reduce_dtype", wire("MixedPrecision's reduce_dtype")},
          {"prefetch", word({"pre", "post", "none"}, "BackwardPrefetch")},
          {"forward_prefetch", flag("the next block is gathered while one runs")},
          {"original_parameters", flag("use_orig_params: the optimizer sees parts of the model's parameters")},
          {"offload", flag("CPUOffload: shards, gradients and the update on the host")},
          {"no_sync", flag("gradients of all micro-steps but the last stay whole")},
          {"wrap_trained_layers", flag("PEFT's policy: each layer of an adapter is a unit of its own")}};
}

ShapeMembers zero_keys() {
  return {{"world", integer("number of processes")},
          {"rank", integer("the rank that is asked about")},
          {"stage", integer("1: optimizer states and fp32 weights are sharded; 2: gradients, too; 3: weights, too")},
          {"reduce_bucket", integer("reduce_bucket_size, in elements")},
          {"contiguous_gradients", flag("as DeepSpeed names it")},
          {"overlap_comm", flag("as DeepSpeed names it")},
          {"reduce_scatter", flag("as DeepSpeed names it")},
          {"round_robin_gradients", flag("parameters are dealt out to the ranks one by one")},
          {"offload_optimizer", flag("fp32 weights, states and the update on the host")},
          {"gradient_dtype", wire("data_types.grad_accum_dtype")},
          {"offload_param", flag("stage 3: the parts of the weights on the host"), kSometimes},
          {"sub_group", integer("stage 3: sub_group_size, in elements"), kSometimes},
          {"persistence_threshold", integer("stage 3: smaller parameters stay whole, in elements"), kSometimes},
          {"model_persistence_threshold", integer("stage 3: the same for all of them together, in elements"), kSometimes},
          {"prefetch_bucket", integer("stage 3: what each call of a module gathers ahead, in elements"), kSometimes},
          {"max_live_parameters", integer("stage 3: no more is gathered ahead, in elements"), kSometimes},
          {"max_reuse_distance", integer("stage 3: what is used again within as many elements is kept"), kSometimes}};
}

ShapeMembers tensor_parallel_keys() {
  return {{"world", integer("number of processes")},
          {"rank", integer("the rank that is asked about")},
          {"sequence", flag("norms and residuals are on a part of the tokens")},
          {"loss_parallel", flag("logits stay sharded over the vocabulary")}};
}

// Of megatron and torchtitan.
ShapeMembers group_keys() {
  return {{"world", integer("number of processes")},
          {"tensor", integer("size of a tensor-parallel group")},
          {"pipeline", integer("stages of the pipeline")},
          {"virtual_stages", integer("chunks of layers a stage has")},
          {"context", integer("size of a context-parallel group")},
          {"layers", layers(), kSometimes},
          {"stage", integer("the stage that is asked about; left out: the largest"), kSometimes}};
}

ShapeMembers megatron_keys() {
  return group_keys() + ShapeMembers{{"expert", integer("size of an expert-parallel group")},
                                     {"expert_tensor", integer("ranks that share an expert")},
                                     {"sequence", flag("tokens are sharded outside of attention and feed-forward")},
                                     {"distributed_optimizer", flag("fp32 weights and Adam's states are sharded over the replicas")},
                                     {"overlap", flag("traffic of gradients hides behind backward (time only)")},
                                     {"fused_gradients", flag("gradient-accumulation-fusion")},
                                     {"fused_loss", flag("Transformer Engine's cross-entropy")},
                                     {"fused_residual", flag("bias-dropout-fusion")},
                                     {"local", flag("PyTorch's own layers instead of Transformer Engine's")},
                                     {"all_to_all", flag("context parallelism by heads")},
                                     {"attention_mask", flag("the loader makes a mask for every sample")},
                                     {"attention", word({"fused", "flash", "unfused"}, "whose attention")}};
}

ShapeMembers torchtitan_keys() {
  return group_keys() +
         ShapeMembers{{"replicas", integer("data_parallel_replicate_degree; above 1: HSDP")},
                      {"schedule", word({"gpipe", "1f1b", "interleaved"}, "of the pipeline")},
                      {"reshard", word({"default", "always", "never"}, "fsdp_reshard_after_forward")},
                      {"micro_batches", integer("parts in which the batch goes through the pipeline; left out: one a sample"), kSometimes},
                      {"loss_parallel", flag("with tensor, logits stay sharded over the vocabulary")},
                      {"rotate", word({"allgather", "alltoall"}, "how keys and values go round under context parallelism")},
                      {"float8", flag("noted, not executed")},
                      {"async_tensor", flag("noted, not executed")},
                      {"loss_chunks", integer("pieces of the sequence that the loss is computed on")},
                      {"version", text("year and month of its code: 2025-11")}};
}

// Settings whose value is more than a word or a number.
using MakeShape = Shape (*)(const std::string& help);

template <ShapeMembers (*keys)()>
Shape mapping_or_null(const std::string& help) {
  return null_or(object(keys(), help));
}
template <ShapeMembers (*keys)()>
Shape mapping_or_switch(const std::string& help) {
  return one_of({flag(""), object(keys(), help)}, help);
}
ShapeMembers offload_keys() { return {{"gradients", flag("gradients are on the host as well")}}; }
Shape names_shape(const std::string& help) { return texts(help); }
Shape size_shape(const std::string& help) { return null_or(bytes(help)); }
Shape own_keys(const std::string& help) { return map(any("a value of the user's own"), help); }

const std::map<std::string, MakeShape>& structured_settings() {
  static const std::map<std::string, MakeShape> kShapes{
      {"config", own_keys},
      {"size", [](const std::string& help) { return null_or(map(integer("a size"), help)); }},
      {"lengths", [](const std::string& help) { return null_or(list(integer("tokens"), help)); }},
      {"lora", mapping_or_null<lora_keys>},
      {"lokr", mapping_or_null<lokr_keys>},
      {"ia3", mapping_or_null<ia3_keys>},
      {"ln_tuning", mapping_or_null<adapter_keys>},
      {"quantization", mapping_or_null<quantization_keys>},
      {"frozen", names_shape},
      {"trainable", names_shape},
      {"checkpointing", mapping_or_switch<checkpointing_keys>},
      {"offload_activations",
       [](const std::string& help) {
         return word({"none", "pinned", "pageable"}, help);
       }},
      {"liger_kernels",
       [](const std::string& help) {
         return list(word({"rope", "rms_norm", "swiglu"}, ""), help);
       }},
      {"optimizer_args", own_keys},
      {"offload_optimizer", mapping_or_switch<offload_keys>},
      {"ddp", mapping_or_switch<ddp_keys>},
      {"zero1", mapping_or_switch<zero1_keys>},
      {"fsdp", mapping_or_switch<fsdp_keys>},
      {"fsdp1", mapping_or_switch<fsdp1_keys>},
      {"zero", mapping_or_switch<zero_keys>},
      {"tensor_parallel", mapping_or_switch<tensor_parallel_keys>},
      {"megatron", mapping_or_switch<megatron_keys>},
      {"torchtitan", mapping_or_switch<torchtitan_keys>},
      {"item_bytes", size_shape},
      {"dataset_bytes", size_shape},
      {"cache_item_bytes", size_shape},
  };
  return kShapes;
}

Shape setting(const Setting& s) {
  static const std::set<std::string> kWhole{"N"}, kReal{"NORM", "SHARE"}, kText{"NAME", "TEXT", "VERSION", "NAME|FILE|DIR"};
  if (const auto found = structured_settings().find(s.key); found != structured_settings().end()) return found->second(s.help);
  if (*s.value == '\0' || std::string(s.value) == "true|false") return flag(s.help);
  if (kWhole.contains(s.value)) return null_or(integer(s.help));
  if (kReal.contains(s.value)) return null_or(number(s.help));
  if (kText.contains(s.value)) return null_or(text(s.help));
  if (const std::vector<std::string> words = words_of(s); !words.empty()) return null_or(word(words, s.help));
  return any(s.help);
}

}  // namespace

Shape job(std::string meaning) {
  ShapeMembers members;
  for (const Setting& s : job_settings())
    if (s.print) members.push_back({s.key, setting(s)});
  members.push_back({"family", text("the architecture that the model is of")});
  members.push_back(
      {"origin", map(text("a flag, a file with the key, or `derived`"), "who gave which setting; the others have their defaults")});
  return part("job", object(members, "every setting of a run; as a job file (--job) it is the same run"), std::move(meaning));
}

Shape settings(std::string meaning) {
  ShapeMembers members;
  for (const Setting& s : job_settings()) members.push_back({s.key, any(s.help), kSometimes});
  return part("settings", object(members, "settings in the form that a job file has"), std::move(meaning));
}

}  // namespace plimsoll::shape
