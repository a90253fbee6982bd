// Layouts of PyTorch's own (DistributedDataParallel, ZeroRedundancyOptimizer, FullyShardedDataParallel, fully_shard, tensor parallelism)
// and of DeepSpeed.
#include <nlohmann/json.hpp>

#include "plan/layout_kinds.h"

namespace plimsoll {

namespace {

constexpr const char* kSharesOut = "it shares out between 2 devices or more";

// Ranks that divide `world`, in powers of two.
std::vector<int64_t> halves_of(int64_t world) {
  std::vector<int64_t> out{world};
  while (out.back() % 2 == 0) out.push_back(out.back() / 2);
  return out;
}

// Weights in fp32 that are gathered in bf16 do what autocast does, with half of the traffic and no copies of weights: how
// torchtitan and transformers train with FSDP.
Patch fsdp_recipe(const Job& job, const nlohmann::json& settings, const char* name = "fsdp") {
  Patch r{{name, settings}};
  if (job.precision == Precision::amp) r.set("precision", "fp32").set(name, "param_dtype", "bf16").set(name, "reduce_dtype", "fp32");
  return r;
}

}  // namespace

Spreads ddp_spreads(const LayoutRequest& r) { return {{{Patch{{"ddp", {{"world", r.world}, {"bucket_view", true}}}}, r.world}}, ""}; }

Spreads zero1_spreads(const LayoutRequest& r) {
  Patch zero{{"ddp", {{"world", r.world}, {"bucket_view", true}}}, {"zero1", {{"world", r.world}, {"ddp", true}}}};
  return {{{std::move(zero), r.world}}, ""};
}

// Weights in bf16 with ZeRO's own fp32 copies do what autocast does: how DeepSpeed trains in bf16. Stages 1 and 2 wait for their
// reductions, or hide them behind backward with a second bucket; stage 3 has streams of its own.
Spreads deepspeed_spreads(const LayoutRequest& r) {
  if (r.world < 2) return {{}, kSharesOut};
  std::vector<Spread> out;
  const auto add = [&](int64_t stage, bool overlap) {
    Spread s{Patch{{"zero", {{"world", r.world}, {"stage", stage}}}}, r.world};
    s.needs_more = overlap;
    if (overlap) s.settings.set("zero", "overlap_comm", true);
    if (r.job.precision == Precision::amp) s.settings.set("precision", "bf16");
    out.push_back(std::move(s));
  };
  for (const int64_t stage : {1, 2})
    for (const bool overlap : {false, true}) add(stage, overlap);
  add(3, false);
  return {out, ""};
}

// One copy of the weights over all devices, or one in every node (hybrid); blocks are resharded after forward, or kept whole.
Spreads fsdp1_spreads(const LayoutRequest& r) {
  if (r.world < 2) return {{}, kSharesOut};
  std::vector<Spread> out;
  const int64_t nodes = r.world % r.cluster.node == 0 ? r.world / r.cluster.node : 1;
  for (const int64_t copies : nodes > 1 ? std::vector<int64_t>{1, nodes} : std::vector<int64_t>{1})
    for (const bool reshard : {true, false})
      for (const bool no_sync : {false, true}) {
        const char* strategy = copies == 1 ? (reshard ? "full_shard" : "shard_grad_op") : reshard ? "hybrid_shard" : "hybrid_shard_zero2";
        nlohmann::json fsdp1{{"world", r.world}, {"strategy", strategy}};
        if (copies > 1) fsdp1["replicas"] = copies;
        if (no_sync) fsdp1["no_sync"] = true;
        out.push_back({fsdp_recipe(r.job, fsdp1, "fsdp1"), r.world, 1, no_sync, !reshard || no_sync});
      }
  return {out, ""};
}

// One copy of the weights over all devices, or over as many as are in whole nodes (HSDP). After forward, blocks are resharded, kept
// whole, or resharded inside the node, so that backward gathers them over its links.
Spreads fsdp2_spreads(const LayoutRequest& r) {
  std::vector<Spread> out;
  const int64_t node = r.cluster.node;
  for (const int64_t shards : halves_of(r.world)) {
    if (shards < 2 || (shards != r.world && shards % node != 0)) continue;
    std::vector<nlohmann::json> reshard{true, false};
    if (shards > node && shards % node == 0) reshard.emplace_back(node);
    for (const nlohmann::json& after_forward : reshard)
      for (const bool no_sync : {false, true}) {
        nlohmann::json fsdp{{"world", r.world}, {"reshard", after_forward}};
        if (shards != r.world) fsdp["replicas"] = r.world / shards;
        if (no_sync) fsdp["no_sync"] = true;
        out.push_back({fsdp_recipe(r.job, fsdp), r.world, 1, no_sync, after_forward != true || no_sync});
      }
  }
  return {out, kSharesOut};
}

// Over all devices of one node; each has every sample.
Spreads tensor_parallel_spreads(const LayoutRequest& r) {
  if (r.world < 2 || r.world > r.cluster.node) return {{}, "alone it stays within one node of 2 devices or more"};
  Spread s;
  s.settings.set("tensor_parallel", {{"world", r.world}, {"sequence", true}, {"loss_parallel", true}});
  return {{s}, ""};
}

// Tensor parallelism inside the node, and shards of its parts over the others.
Spreads fsdp2_tensor_spreads(const LayoutRequest& r) {
  std::vector<Spread> out;
  for (int64_t tensor = 2; tensor <= r.cluster.node && 2 * tensor <= r.world; tensor *= 2) {
    if (r.world % tensor != 0) continue;
    for (const bool reshard : {true, false}) {
      Spread s{fsdp_recipe(r.job, {{"world", r.world / tensor}, {"reshard", reshard}}), r.world / tensor};
      s.needs_more = !reshard;
      s.settings.set("tensor_parallel", {{"world", tensor}, {"sequence", true}, {"loss_parallel", true}});
      out.push_back(std::move(s));
    }
  }
  return {out, "it takes 4 devices or more, an even number of them in a node"};
}

}  // namespace plimsoll
