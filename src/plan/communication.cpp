#include "plan/communication.h"

#include <algorithm>

namespace plimsoll {

namespace {

// What of backward can hide an all-reduce: the last bucket is not ready before its end.
constexpr double kOverlap = 0.9;

bool weights_in_half(const Job& job) { return job.precision == Precision::bf16 || job.precision == Precision::fp16; }

double bytes_of(WireType type, const Job& job) {
  return type == WireType::own ? (weights_in_half(job) ? 2.0 : 4.0) : type == WireType::fp32 ? 4.0 : 2.0;
}

// Ranks that are nearer to each other than those of data parallelism.
int64_t inner_ranks(const Job& job) { return job.parallel.tensor ? job.parallel.tensor->world : 1; }

// Blocks of one micro-step, and the model around them.
double groups_of(const Simulation& s) {
  const auto first = [](const BlockRun& b) { return b.micro_step == 0; };
  return 1 + static_cast<double>(std::count_if(s.work.blocks.begin(), s.work.blocks.end(), first));
}

// Weights are gathered for forward, and again for backward when they were resharded (in smaller groups, if those were named); gradients
// are reduced into shards, and between copies. One collective for each block.
double sharding_seconds(const Job& job, const FsdpSettings& f, const Simulation& s, const StepTime& t, const Links& links) {
  const int64_t inner = inner_ranks(job);
  const RankGroup shards{f.shards(), inner}, copies{f.replicas, inner * f.shards()};
  const RankGroup backward{f.reshard_to > 0 ? f.reshard_to : f.shards(), inner};
  const auto micro = static_cast<double>(job.accumulation), whole = static_cast<double>(f.shards());
  const double groups = groups_of(s);
  const double weights = whole * static_cast<double>(s.parameters) * bytes_of(f.param_dtype, job) / groups;
  const double gradients = whole * static_cast<double>(s.trainable) * bytes_of(f.reduce_dtype, job) / groups;
  const double gathered = links.gather(weights, shards) + (f.reshard ? links.gather(weights, backward) : 0);
  const double reduced = links.gather(gradients, shards) + links.reduce(gradients / whole, copies);
  const double seconds = groups * (micro * gathered + (f.no_sync ? 1 : micro) * reduced);
  // Nothing hides the first gather and the last reduction.
  return std::max(links.gather(weights, shards) + reduced, seconds - kOverlap * (t.forward + t.backward + t.recompute));
}

// FSDP1 moves the same as FSDP2.
FsdpSettings as_fsdp(const Fsdp1Settings& f) {
  FsdpSettings out;
  out.world = f.world;
  out.replicas = f.sharded() ? f.replicas : f.world;
  out.reshard = f.reshards();
  out.param_dtype = f.param_dtype;
  out.reduce_dtype = f.reduce_dtype;
  out.no_sync = f.no_sync;
  return out;
}

// DeepSpeed's stage 2 reduces in every micro-step, stage 1 in the last; then the updated parts go to all.
double deepspeed_seconds(const Job& job, double gradients, const StepTime& t, const Links& links) {
  const DeepSpeedSettings& d = *job.parallel.deepspeed;
  const RankGroup all{d.world, 1};
  const auto reductions = d.stage == 2 ? static_cast<double>(job.accumulation) : 1.0;
  const double hidden = kOverlap * (t.backward + t.recompute);
  return std::max(0.0, reductions * links.reduce(gradients, all) - hidden) + links.gather(gradients, all);
}

double ddp_seconds(const Job& job, const DdpSettings& ddp, double gradients, const StepTime& t, const Links& links) {
  const RankGroup all{ddp.world, inner_ranks(job)};
  const auto reductions = ddp.no_sync ? 1.0 : static_cast<double>(job.accumulation);
  const double size = std::min(gradients, ddp.bucket_mb.value_or(25) * 1048576);
  const double bucket = links.reduce(size, all), buckets = size > 0 ? gradients / size : 0;
  const double hidden = kOverlap * (t.backward + t.recompute) / static_cast<double>(job.accumulation);
  return reductions * std::max(bucket, buckets * bucket - hidden);
}

// Attention and feed-forward of each block are summed over the ranks in forward, and their inputs' gradients in backward; with
// sequence parallelism a gather and a reduce-scatter take the place of each sum. The embedding is summed, too; logits are gathered unless
// the loss is computed from shards.
double tensor_seconds(const Job& job, const Simulation& s, const Links& links) {
  const TensorParallelSettings& p = *job.parallel.tensor;
  const RankGroup ranks{p.world, 1};
  // Defaults are those of transformers' LlamaConfig.
  const double element = job.precision == Precision::fp32 && !job.parallel.fsdp ? 4 : 2;
  const double tokens = static_cast<double>(job.batch) * static_cast<double>(std::max<int64_t>(1, job.seq));
  const double hidden = tokens * static_cast<double>(job.config.size({"hidden_size"}, 4096)) * element;
  const double vocabulary = static_cast<double>(job.config.size({"vocab_size"}, 32000));
  const double sum = p.sequence ? 2 * links.gather(hidden, ranks) : links.reduce(hidden, ranks);
  const double logits = p.loss_parallel ? 0 : links.gather(tokens * vocabulary * element, ranks);
  return static_cast<double>(job.accumulation) * ((4 * (groups_of(s) - 1) + 2) * sum + logits);
}

}  // namespace

double communication_seconds(const Job& job, const Simulation& s, const StepTime& t, const Links& links) {
  const ParallelSettings& p = job.parallel;
  const double gradients = static_cast<double>(s.trainable) * (weights_in_half(job) ? 2 : 4);
  double seconds = 0;
  if (const std::optional<DdpSettings> ddp = p.reducer(); ddp && ddp->world > 1) seconds += ddp_seconds(job, *ddp, gradients, t, links);
  if (p.zero1) seconds += links.gather(gradients, {p.zero1->world, inner_ranks(job)});  // the updated weights
  if (p.fsdp && p.fsdp->world > 1) seconds += sharding_seconds(job, *p.fsdp, s, t, links);
  if (p.fsdp1 && p.fsdp1->world > 1) seconds += sharding_seconds(job, as_fsdp(*p.fsdp1), s, t, links);
  if (p.deepspeed && p.deepspeed->world > 1) seconds += deepspeed_seconds(job, gradients, t, links);
  if (p.tensor && p.tensor->world > 1) seconds += tensor_seconds(job, s, links);
  return seconds;
}

}  // namespace plimsoll
