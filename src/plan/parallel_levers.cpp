#include "plan/parallel_levers.h"

#include <nlohmann/json.hpp>

#include "plan/without_defaults.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// The setting as it is, with some of its keys changed.
template <class Settings>
Json changed(const Settings& settings, const Json& keys) {
  Json out = to_json(settings);
  out.update(keys);
  return without_defaults(out, to_json(Settings{}));
}

void add(std::vector<Lever>& out, const char* name, const char* setting, Json value, LeverKind kind, const char* cost) {
  out.push_back({"ddp", name, {{setting, std::move(value)}}, kind, cost});
}

void add_free(std::vector<Lever>& out, const char* name, const char* setting, Json value, const char* cost) {
  add(out, name, setting, std::move(value), LeverKind::same_result, cost);
  out.back().free = true;
}

void of_ddp(const ParallelSettings& p, std::vector<Lever>& out) {
  if (!p.ddp) return;
  if (!p.ddp->bucket_view)
    add_free(out, "gradients as views of DDP's buckets", "ddp", changed(*p.ddp, {{"bucket_view", true}}), "none: it is faster");
  if (p.zero1 || p.ddp->world < 2) return;
  add(out, "optimizer states over the ranks (ZeRO-1)", "zero1", {{"world", p.ddp->world}, {"ddp", true}}, LeverKind::same_result,
      "a broadcast of the weights after each update");
  out.push_back({"ddp",
                 "weights, gradients and states over the ranks (FSDP2)",
                 {{"ddp", false}, {"fsdp", {{"world", p.ddp->world}}}},
                 LeverKind::same_result,
                 "weights are gathered in forward and backward"});
  constexpr const char *kUpdated = "the updated weights go to all after each step; needs DeepSpeed",
                       *kGathered = "every layer's weights are gathered in forward and backward; needs DeepSpeed";
  const auto add_zero = [&](int64_t stage, const char* name, const char* cost) {
    out.push_back({"ddp", name, {{"ddp", false}, {"zero", {{"world", p.ddp->world}, {"stage", stage}}}}, LeverKind::same_result, cost});
  };
  add_zero(1, "states over the ranks (DeepSpeed's ZeRO-1)", kUpdated);
  add_zero(2, "states and gradients over the ranks (DeepSpeed's ZeRO-2)", kUpdated);
  add_zero(3, "weights, gradients and states over the ranks (DeepSpeed's ZeRO-3)", kGathered);
}

// As it is with some of its keys changed; beside the stage, what differs from its defaults is said.
Json changed_zero(const DeepSpeedSettings& zero, const Json& keys) {
  Json out = to_json(zero);
  if (keys.contains("stage")) out.erase("overlap_comm");  // each stage has its own default
  out.update(keys);
  const Json stage = out["stage"];
  out = without_defaults(out, to_json(parse_deepspeed({{"world", zero.world}, {"stage", stage}})));
  out["stage"] = stage;
  return out;
}

void of_zero(const ParallelSettings& p, std::vector<Lever>& out) {
  if (!p.deepspeed || p.deepspeed->world < 2) return;
  const auto with = [&](const Json& keys) { return changed_zero(*p.deepspeed, keys); };
  if (p.deepspeed->stage == 1)
    add(out, "gradients over the ranks, too (ZeRO-2)", "zero", with({{"stage", 2}}), LeverKind::same_result,
        "gradients are reduced in every micro-step");
  if (p.deepspeed->stage < 3)
    add(out, "weights over the ranks, too (ZeRO-3)", "zero", with({{"stage", 3}}), LeverKind::same_result,
        "every layer's weights are gathered in forward and backward");
  if (!p.deepspeed->offload_optimizer)
    add(out, "ZeRO's states and update on the host", "zero", with({{"offload_optimizer", true}}), LeverKind::same_result,
        "an update on the CPU, gradients and weights over PCIe");
  if (p.deepspeed->stage == 3 && !p.deepspeed->offload_param)
    add(out, "ZeRO's parts of the weights on the host", "zero", with({{"offload_param", true}}), LeverKind::same_result,
        "weights come over PCIe when they are gathered");
}

void of_fsdp(const Job& job, std::vector<Lever>& out) {
  if (!job.parallel.fsdp || job.parallel.fsdp->world < 2) return;
  const FsdpSettings& f = *job.parallel.fsdp;
  const auto with = [&](const Json& keys) { return changed(f, keys); };
  if (f.reshard)
    add(out, "blocks kept whole after forward", "fsdp", with({{"reshard", false}}), LeverKind::same_result,
        "none: weights are gathered once a micro-step");
  else
    add(out, "blocks resharded after forward", "fsdp", with({{"reshard", true}}), LeverKind::same_result, "weights are gathered twice");
  if (f.no_sync)
    add(out, "gradients reduced in every micro-step", "fsdp", with({{"no_sync", false}}), LeverKind::same_result,
        "as many reductions as micro-steps");
  if (f.replicas > 1)
    add(out, "one copy of the weights over all ranks", "fsdp", with({{"replicas", 1}}), LeverKind::same_result,
        "weights are gathered over more ranks, between nodes too");
  const bool fp32 = job.precision == Precision::fp32 || job.precision == Precision::amp;
  if (fp32 && f.param_dtype == WireType::own)
    add(out, "weights gathered in bf16", "fsdp", with({{"param_dtype", "bf16"}, {"reduce_dtype", "fp32"}}), LeverKind::different_numerics,
        "none: it is faster; MixedPrecisionPolicy");
}

void of_tensor(const ParallelSettings& p, std::vector<Lever>& out) {
  if (!p.tensor || p.tensor->world < 2) return;
  if (!p.tensor->sequence)
    add(out, "norms and residuals on a part of the sequence", "tensor_parallel", changed(*p.tensor, {{"sequence", true}}),
        LeverKind::same_result, "none to speak of: sequence parallel");
  if (!p.tensor->loss_parallel)
    add(out, "the loss from sharded logits", "tensor_parallel", changed(*p.tensor, {{"loss_parallel", true}}), LeverKind::same_result,
        "none: less is gathered");
}

void of_megatron(const ProgramSettings& p, std::vector<Lever>& out) {
  if (!p.megatron) return;
  const MegatronSettings& m = *p.megatron;
  const auto with = [&](const Json& keys) { return changed(m, keys); };
  if (m.tensor > 1 && !m.sequence)
    add(out, "sequence parallel", "megatron", with({{"sequence", true}}), LeverKind::same_result, "a quarter more traffic in the node");
  if (!m.distributed_optimizer && m.shards() > 1)
    add_free(out, "the distributed optimizer", "megatron", with({{"distributed_optimizer", true}}), "none");
  if (!m.fused_loss)
    add(out, "the loss in the place of the logits", "megatron", with({{"fused_loss", true}}), LeverKind::same_result,
        "none: cross-entropy-fusion-impl te");
}

}  // namespace

std::vector<Lever> parallel_levers(const Job& job) {
  std::vector<Lever> out;
  of_ddp(job.parallel, out);
  of_zero(job.parallel, out);
  of_fsdp(job, out);
  of_tensor(job.parallel, out);
  of_megatron(job.program, out);
  return out;
}

}  // namespace plimsoll
