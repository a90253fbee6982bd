#include "step/sharding_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "nn/tensor_parallel.h"
#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

void check_fsdp(const Job& job) {
  if (!job.parallel.fsdp && !job.parallel.fsdp1) return;
  const std::string kind = job.parallel.fsdp ? "fsdp" : "fsdp1";
  const auto refuse = [&](const std::string& what) {
    throw Error("[" + kind + "] " + what + " with " + kind + " is not simulated", "leave one of them out");
  };
  if (job.tuning.quantization) refuse("quantization");
  if (job.precision == Precision::amp_fp16 && job.loss_scaling) refuse("loss scaling");
  if (job.swap_blocks > 0) refuse("swap_blocks");
  if (job.parallel.fsdp1 && job.master_weights) refuse("master_weights");
  if (job.parallel.fsdp1 && job.optimizer_in_backward) refuse("optimizer_in_backward");
  if (job.parallel.fsdp1 && job.parallel.fsdp1->offload && job.accumulation > 1 && !job.parallel.fsdp1->no_sync)
    throw Error("[fsdp1] offload and accumulation without no_sync: gradients on the host are not added to",
                "set no_sync: true, or accumulation to 1");
}

void check_tensor_parallel(const Job& job, const std::string& family) {
  if (!job.parallel.tensor) return;
  const TensorParallelSettings& t = *job.parallel.tensor;
  const auto refuse = [](const std::string& what, const std::string& why, const std::string& hint) {
    throw Error("[tensor_parallel] " + what + ": " + why, hint);
  };
  const std::vector<std::string> known{"llama", "mistral", "qwen2", "qwen3", "granite"}, of_whole_tokens{"gemma", "gemma2", "cohere"};
  const auto has = [&](const std::vector<std::string>& names) { return std::find(names.begin(), names.end(), family) != names.end(); };
  if (!has(known) && !has(of_whole_tokens))
    refuse(family, "there is no plan for it",
           "plans exist for " + join(known, ", ") + "; without sequence for " + join(of_whole_tokens, ", "));
  if (t.sequence && has(of_whole_tokens))
    refuse("sequence with " + family, "its embeddings and norms are on all tokens here",
           "leave sequence out, or take " + join(known, ", "));
  for (const char* heads : {"num_key_value_heads", "num_attention_heads"})  // the fewer first: what divides them divides the others
    if (job.config.find({heads}) && !job.config.is_null(heads)) TensorParallel(t).share(heads, job.config.size({heads}, 1));
  const TuningSettings& u = job.tuning;
  if (u.adapter || u.quantization || !u.frozen.empty() || !u.trainable.empty())
    refuse("adapters, frozen or quantised layers", "not simulated", "leave one of them out");
  if (job.loss_settings.kernel != LossKernel::model) refuse("loss_kernel", "it takes a whole head", "leave one of them out");
  const bool heads_have_norms = family == "qwen3";  // which no plan shards
  const bool mixes = !job.parallel.fsdp;            // where fully_shard makes DTensors of all of them
  if (job.clip && mixes && (!t.sequence || heads_have_norms))
    refuse("clip", "some norms are plain tensors, and clip_grad_norm_ refuses a mix of those and DTensors",
           heads_have_norms ? "leave clip out" : "set sequence: true, or leave clip out");
  if (!t.sequence) return;
  if (job.attention == AttentionKernel::eager)
    refuse("sequence with eager attention", "the mask would be of a part of the tokens", "attention: auto");
  if (job.seq % t.world != 0)
    refuse(fmt::format("sequence of {} tokens", job.seq), fmt::format("world {} does not divide them", t.world),
           fmt::format("the nearest: {} and {} tokens", std::max(t.world, job.seq / t.world * t.world), round_up(job.seq, t.world)));
}

}  // namespace plimsoll
