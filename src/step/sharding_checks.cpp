#include "step/sharding_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "job/packed_storage.h"
#include "model/registry.h"
#include "nn/tensor_parallel.h"
#include "util/checked.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// PEFT casts what goes into lora_A to the type that its weight has at that moment, which is the shard's; the product with a weight that was
// gathered in another type is then refused, unless autocast casts both.
void check_adapter_type(const Job& job, const AdapterSettings& adapter, WireType gathered, Problems& out) {
  const bool autocasts = job.autocast || job.precision == Precision::amp || job.precision == Precision::amp_fp16;
  if (adapter.kind != AdapterKind::lora || gathered == WireType::own || autocasts) return;
  const std::string own = adapter.fp32 ? "fp32" : to_string(job.precision), other = to_string(gathered);
  if (own == other) return;
  out.push_back(
      {fmt::format("[fsdp1] param_dtype {} and LoRA in {}, without autocast: PyTorch refuses to multiply {} by {}", other, own, own, other),
       "set precision to amp or autocast to true (accelerate does so for mixed precision), or leave param_dtype out"});
}

// Packed weights are cut and gathered as numbers of a floating type: no other type may be made of them on the way.
void check_packed(const QuantizationSettings& quantization, const std::string& kind, WireType gathered, Problems& out) {
  const std::optional<WireType> storage = packed_storage(quantization);
  if (!storage) {
    out.push_back(
        {fmt::format("[{}] quantization {} with {}: packed weights that are integers are not sharded", kind, quantization.type, kind),
         "set type: nf4-bf16 (bnb_4bit_quant_storage=torch.bfloat16), or leave one of them out"});
    return;
  }
  if (gathered == WireType::own || gathered == *storage) return;
  out.push_back(
      {fmt::format("[{}] param_dtype {} would cast weights that are packed in {}", kind, to_string(gathered), to_string(*storage)),
       fmt::format("set param_dtype: {}, or the storage of the packed weights to {}", to_string(*storage), to_string(gathered))});
}

// With PEFT's policy each trained layer is a unit of its own, whose weight is a flat shard outside its forward.
void check_adapter_units(const Job& job, Problems& out) {
  if (!job.parallel.fsdp1 || !job.tuning.adapter || !job.parallel.fsdp1->wrap_trained_layers) return;
  const AdapterSettings& adapter = *job.tuning.adapter;
  if (adapter.use_dora)
    out.push_back({"[fsdp1] use_dora: PEFT asks the weight of lora_A for its second dimension, and a flat shard has none",
                   "take fsdp (FSDP2), or wrap_trained_layers: false with original_parameters: true"});
  if (!adapter.modules_to_save.empty() || adapter.classifier_is_saved || adapter.kind == AdapterKind::ln_tuning)
    out.push_back({"[fsdp1] modules that are trained in full beside an adapter are units of their own, which is not simulated",
                   "take fsdp (FSDP2), or leave modules_to_save out"});
  check_adapter_type(job, adapter, job.parallel.fsdp1->param_dtype, out);
}

}  // namespace

void check_fsdp(const Job& job, Problems& out) {
  if (!job.parallel.fsdp && !job.parallel.fsdp1) return;
  const std::string kind = job.parallel.fsdp ? "fsdp" : "fsdp1";
  const auto refuse = [&](const std::string& what) {
    out.push_back({"[" + kind + "] " + what + " with " + kind + " is not simulated", "leave one of them out"});
  };
  if (job.tuning.quantization)
    check_packed(*job.tuning.quantization, kind, job.parallel.fsdp ? job.parallel.fsdp->param_dtype : job.parallel.fsdp1->param_dtype, out);
  check_adapter_units(job, out);
  if (job.swap_blocks > 0) refuse("swap_blocks");
  if (job.parallel.fsdp1 && job.master_weights) refuse("master_weights");
  if (job.parallel.fsdp1 && job.optimizer_in_backward) refuse("optimizer_in_backward");
  if (job.parallel.fsdp1 && job.parallel.fsdp1->offload && job.accumulation > 1 && !job.parallel.fsdp1->no_sync)
    out.push_back({"[fsdp1] offload and accumulation without no_sync: gradients on the host are not added to",
                   "set no_sync: true, or accumulation to 1"});
}

void check_tensor_parallel(const Job& job, const ModelEntry& model, Problems& out) {
  if (!job.parallel.tensor) return;
  const TensorParallelSettings& t = *job.parallel.tensor;
  const auto refuse = [&](const std::string& what, const std::string& why, const std::string& hint) {
    out.push_back({"[tensor_parallel] " + what + ": " + why, hint});
  };
  const auto planned = [](bool sequence) {
    return join(families_where([=](const Family& f) { return f.tensor_plan && f.tensor_plan->sequence == sequence; }), ", ");
  };
  const std::optional<TensorPlan>& plan = model.family->tensor_plan;
  if (!plan || model.inputs != InputKind::lm)
    return refuse(model.name, "there is no plan for it", "plans exist for " + planned(true) + "; without sequence for " + planned(false));
  if (t.sequence && !plan->sequence)
    refuse("sequence with " + model.name, "its embeddings and norms are on all tokens here",
           "leave sequence out, or take " + planned(true));
  for (const char* heads : {"num_key_value_heads", "num_attention_heads"}) {  // the fewer first: what divides them divides the others
    if (!job.config.find({heads})) continue;
    if (!succeeds([&] { TensorParallel(t).share(heads, job.config.size({heads}, 1)); }, out)) break;
  }
  const TuningSettings& u = job.tuning;
  if (u.adapter || u.quantization || !u.frozen.empty() || !u.trainable.empty())
    refuse("adapters, frozen or quantised layers", "not simulated", "leave one of them out");
  if (job.loss_settings.kernel != LossKernel::model) refuse("loss_kernel", "it takes a whole head", "leave one of them out");
  const bool mixes = !job.parallel.fsdp;  // where fully_shard makes DTensors of all of them
  if (job.clip && mixes && (!t.sequence || plan->plain_head_norms))
    refuse("clip", "some norms are plain tensors, and clip_grad_norm_ refuses a mix of those and DTensors",
           plan->plain_head_norms ? "leave clip out" : "set sequence: true, or leave clip out");
  if (!t.sequence) return;
  if (job.attention == AttentionKernel::eager)
    refuse("sequence with eager attention", "the mask would be of a part of the tokens", "attention: auto");
  if (job.seq % t.world != 0)
    refuse(fmt::format("sequence of {} tokens", job.seq), fmt::format("world {} does not divide them", t.world),
           fmt::format("the nearest: {} and {} tokens", std::max(t.world, job.seq / t.world * t.world), round_up(job.seq, t.world)));
}

}  // namespace plimsoll
