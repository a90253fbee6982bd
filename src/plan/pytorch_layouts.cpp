// Layouts of PyTorch's own: DistributedDataParallel, ZeroRedundancyOptimizer, fully_shard and tensor parallelism.
#include "plan/layout_kinds.h"

namespace plimsoll {

namespace {

// Ranks that divide `world`, in powers of two.
std::vector<int64_t> halves_of(int64_t world) {
  std::vector<int64_t> out{world};
  while (out.back() % 2 == 0) out.push_back(out.back() / 2);
  return out;
}

// Weights in fp32 that are gathered in bf16 do what autocast does, with half of the traffic and no copies of weights: how
// torchtitan and transformers train with FSDP.
Recipe fsdp_recipe(const Job& job, const nlohmann::json& fsdp) {
  Recipe r{{"fsdp", fsdp}};
  if (job.precision != Precision::amp) return r;
  r["precision"] = "fp32";
  r["fsdp"]["param_dtype"] = "bf16";
  r["fsdp"]["reduce_dtype"] = "fp32";
  return r;
}

}  // namespace

std::vector<Spread> ddp_spreads(const LayoutRequest& r) { return {{{{"ddp", {{"world", r.world}, {"bucket_view", true}}}}, r.world}}; }

std::vector<Spread> zero1_spreads(const LayoutRequest& r) {
  Recipe zero{{"ddp", {{"world", r.world}, {"bucket_view", true}}}, {"zero1", {{"world", r.world}, {"ddp", true}}}};
  return {{std::move(zero), r.world}};
}

// One copy of the weights over all devices, or over as many as are in whole nodes (HSDP). After forward, blocks are resharded, kept
// whole, or resharded inside the node, so that backward gathers them over its links.
std::vector<Spread> fsdp2_spreads(const LayoutRequest& r) {
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
        out.push_back({fsdp_recipe(r.job, fsdp), r.world, 1, no_sync});
      }
  }
  return out;
}

// Over all devices of one node; each has every sample.
std::vector<Spread> tensor_parallel_spreads(const LayoutRequest& r) {
  if (r.world < 2 || r.world > r.cluster.node) throw Error("alone it stays within one node of 2 devices or more", "");
  Spread s;
  s.settings["tensor_parallel"] = {{"world", r.world}, {"sequence", true}, {"loss_parallel", true}};
  return {s};
}

}  // namespace plimsoll
