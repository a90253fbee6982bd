#include "plan/communication.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {

namespace {

bool weights_in_half(const Job& job) { return job.precision == Precision::bf16 || job.precision == Precision::fp16; }

double bytes_of(WireType type, const Job& job) {
  return type == WireType::own ? (weights_in_half(job) ? 2.0 : 4.0) : type == WireType::fp32 ? 4.0 : 2.0;
}

// Ranks that are nearer to each other than those of data parallelism.
int64_t inner_ranks(const Job& job) { return job.parallel.tensor ? job.parallel.tensor->world : 1; }

}  // namespace

double groups_of(const Simulation& s) {
  const auto first = [](const BlockRun& b) { return b.micro_step == 0; };
  return 1 + static_cast<double>(std::count_if(s.work.blocks.begin(), s.work.blocks.end(), first));
}

GroupSeconds group_seconds(const Job& job, const FsdpSettings& f, int64_t inner, const Simulation& s, const Interconnect& links) {
  const RankGroup shards{f.shards(), inner}, copies{f.replicas, inner * f.shards()};
  const RankGroup again{f.reshard_to > 0 ? f.reshard_to : f.shards(), inner};
  const double groups = groups_of(s), whole = static_cast<double>(f.shards());
  const double weights = whole * static_cast<double>(s.parameters) * bytes_of(f.param_dtype, job) / groups;
  const double gradients = whole * static_cast<double>(s.trainable) * bytes_of(f.reduce_dtype, job) / groups;
  return {links.gather(weights, shards), f.reshard ? links.gather(weights, again) : 0,
          links.gather(gradients, shards) + links.reduce(gradients / whole, copies)};
}

double sharding_seconds(const Job& job, const FsdpSettings& f, int64_t inner, const Simulation& s, const StepTime& t,
                        const Interconnect& links) {
  const GroupSeconds g = group_seconds(job, f, inner, s, links);
  const auto micro = static_cast<double>(job.accumulation);
  const double seconds = groups_of(s) * (micro * (g.forward + g.backward) + (f.no_sync ? 1 : micro) * g.reduce);
  // Nothing hides the first gather and the last reduction.
  return std::max(g.forward + g.reduce, seconds - kOverlap * (t.forward + t.backward + t.recompute));
}

double tensor_block_seconds(const Checkpointing& c, bool sequence, double hidden, const RankGroup& ranks, const Interconnect& links) {
  const double again = 1 / static_cast<double>(std::max<int64_t>(1, c.every));  // of all blocks
  if (!sequence) return (4 + (c.on ? again : 0)) * links.reduce(hidden, ranks);
  return (8 + (c.on ? (c.save.empty() ? 3 : 2) * again : 0)) * links.gather(hidden, ranks);
}

namespace {

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

// What DeepSpeed's stage 3 gathered in the last micro-step that was executed: weights by themselves, or several in one flat tensor.
struct Gathers {
  double bytes = 0, calls = 0;
};

Gathers zero_3_gathers(const Trace& trace) {
  double flats = 0, in_flats = 0, weights = 0, bytes = 0;
  bool computes = false;
  for (const Event& e : trace.events) {
    if (e.kind == Event::Kind::phase) {
      computes = e.value == static_cast<uint8_t>(Phase::forward) || e.value == static_cast<uint8_t>(Phase::backward);
      if (e.value == static_cast<uint8_t>(Phase::forward)) flats = in_flats = weights = bytes = 0;
    }
    if (e.kind != Event::Kind::alloc || !computes) continue;
    const StorageRecord& s = trace.storages[e.storage];
    if (s.born_as == Category::gather_buffer) flats += 1, in_flats += static_cast<double>(s.bytes);
    if (s.born_as == Category::unsharded_parameter) weights += 1, bytes += static_cast<double>(s.bytes);
  }
  if (bytes == 0) return {};
  return {bytes, std::max(1.0, flats + weights * std::max(0.0, 1 - in_flats / bytes))};
}

// Gathers as they were executed, and gradients reduced into parts, bucket by bucket, in every micro-step.
double zero_3_seconds(const Job& job, const Simulation& s, const StepTime& t, const Interconnect& links) {
  const DeepSpeedSettings& d = *job.parallel.deepspeed;
  const RankGroup all{d.world, 1};
  const auto micro = static_cast<double>(job.accumulation), world = static_cast<double>(d.world);
  const Gathers g = zero_3_gathers(s.trace);
  const double gathered = g.calls > 0 ? g.calls * links.gather(g.bytes / g.calls, all) : 0;
  const double elements = static_cast<double>(s.trainable) * world, element = weights_in_half(job) ? 2 : 4;
  const double buckets = std::max(1.0, std::ceil(elements / static_cast<double>(d.reduce_bucket))), bucket = elements * element / buckets;
  const double reduced = buckets * (d.reduce_scatter ? links.gather(bucket, all) : links.reduce(bucket, all));
  const double hidden = d.overlap_comm ? kOverlap * (t.forward + t.backward + t.recompute) : 0;
  return std::max(gathered / std::max(1.0, g.calls) + reduced / buckets, micro * (gathered + reduced) - hidden);
}

// DeepSpeed's stage 2 reduces in every micro-step, stage 1 in the last; then the updated parts go to all. Without overlap_comm backward
// waits for each bucket.
double deepspeed_seconds(const Job& job, const Simulation& s, double gradients, const StepTime& t, const Interconnect& links) {
  const DeepSpeedSettings& d = *job.parallel.deepspeed;
  if (d.stage == 3) return zero_3_seconds(job, s, t, links);
  const RankGroup all{d.world, 1};
  const auto reductions = d.stage == 2 ? static_cast<double>(job.accumulation) : 1.0;
  const double hidden = d.overlap_comm ? kOverlap * (t.backward + t.recompute) : 0;
  return std::max(0.0, reductions * links.reduce(gradients, all) - hidden) + links.gather(gradients, all);
}

double ddp_seconds(const Job& job, const DdpSettings& ddp, double gradients, const StepTime& t, const Interconnect& links) {
  const RankGroup all{ddp.world, inner_ranks(job)};
  const auto reductions = ddp.no_sync ? 1.0 : static_cast<double>(job.accumulation);
  const double size = std::min(gradients, ddp.bucket_mb.value_or(25) * 1048576);
  const double bucket = links.reduce(size, all), buckets = size > 0 ? gradients / size : 0;
  const double hidden = kOverlap * (t.backward + t.recompute) / static_cast<double>(job.accumulation);
  return reductions * std::max(bucket, buckets * bucket - hidden);
}

// The embedding is summed, too, as half a block's; logits are gathered unless the loss is computed from shards.
double tensor_seconds(const Job& job, const Simulation& s, const Interconnect& links) {
  const TensorParallelSettings& p = *job.parallel.tensor;
  const RankGroup ranks{p.world, 1};
  // Defaults are those of transformers' LlamaConfig.
  const double element = job.precision == Precision::fp32 && !job.parallel.fsdp ? 4 : 2;
  const double tokens = static_cast<double>(job.batch) * static_cast<double>(std::max<int64_t>(1, job.seq));
  const double hidden = tokens * static_cast<double>(job.config.size({"hidden_size"}, 4096)) * element;
  const double vocabulary = static_cast<double>(job.config.size({"vocab_size"}, 32000));
  const double blocks = (groups_of(s) - 1) * tensor_block_seconds(job.checkpointing, p.sequence, hidden, ranks, links);
  const double ends = tensor_block_seconds({}, p.sequence, hidden, ranks, links) / 2;
  const double logits = p.loss_parallel ? 0 : links.gather(tokens * vocabulary * element, ranks);
  return static_cast<double>(job.accumulation) * (blocks + ends + logits);
}

}  // namespace

double communication_seconds(const Job& job, const Simulation& s, const StepTime& t, const Interconnect& links) {
  const ParallelSettings& p = job.parallel;
  const double gradients = static_cast<double>(s.trainable) * (weights_in_half(job) ? 2 : 4);
  double seconds = 0;
  if (const std::optional<DdpSettings> ddp = p.reducer(); ddp && ddp->world > 1) seconds += ddp_seconds(job, *ddp, gradients, t, links);
  if (p.zero1) seconds += links.gather(gradients, {p.zero1->world, inner_ranks(job)});  // the updated weights
  if (p.fsdp && p.fsdp->world > 1) seconds += sharding_seconds(job, *p.fsdp, inner_ranks(job), s, t, links);
  if (p.fsdp1 && p.fsdp1->world > 1) seconds += sharding_seconds(job, as_fsdp(*p.fsdp1), 1, s, t, links);
  if (p.deepspeed && p.deepspeed->world > 1) seconds += deepspeed_seconds(job, s, gradients, t, links);
  if (p.tensor && p.tensor->world > 1) seconds += tensor_seconds(job, s, links);
  return seconds;
}

}  // namespace plimsoll
