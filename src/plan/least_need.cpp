#include "plan/least_need.h"

#include "step/optimizer_costs.h"

namespace plimsoll {

namespace {

bool in_half(const Job& job) { return job.precision == Precision::bf16 || job.precision == Precision::fp16; }

// Bytes a parameter. DeepSpeed's are of weights in fp32, which it keeps beside those in a half type.
double state_bytes(const Job& job) {
  const bool copies = job.parallel.deepspeed && in_half(job);
  const CostPrecision precision = in_half(job) && !copies ? CostPrecision::bf16 : CostPrecision::fp32;
  for (const OptimizerEntry& e : optimizer_registry()) {
    if (job.optimizer.name != e.name) continue;
    const auto cost = optimizer_cost(e, job.optimizer.args.values(), precision);
    if (cost) return 0.9 * cost->states + (copies ? 4 : 0);  // factored states are smaller where matrices are larger
  }
  return 0;
}

// 2 + 4 bytes of weights and gradients, 12 of fp32 weights and Adam's states over the ranks of the distributed optimizer.
double least_of_megatron(const MegatronSettings& m) {
  const double rank = 6 + 12.0 / static_cast<double>(m.distributed_optimizer ? m.shards() : 1);
  return rank / static_cast<double>(m.tensor * m.pipeline * m.expert);
}

// fp32 weights, gradients and Adam's states over the ranks of fully_shard, on the largest stage at least; a pipeline keeps bf16 weights and
// fp32 gradients whole until its last backward, when gradients have no shards yet.
double least_of_torchtitan(const Job& job) {
  const TorchtitanSettings& t = *job.parallel.torchtitan;
  const double shards = static_cast<double>(t.shards()), states = state_bytes(job);
  const double rank = t.pipelined() ? 6 + (4 + states) / shards : (8 + states) / shards;
  return rank / static_cast<double>(t.tensor * t.pipeline);
}

struct Shares {
  double weights = 1, gradients = 1, states = 1;  // of the model, on this rank
};

// With the states, gradients go to the host.
Shares shares_of(const DeepSpeedSettings& d) {
  const double part = 1 / static_cast<double>(d.world);
  const double weights = d.stage < 3 ? 1 : d.offload_param ? 0 : part, rest = d.offload_optimizer ? 0 : part;
  return {weights, rest, rest};
}

// Gradients that accumulate whole are counted as shards: a bound may be lower.
Shares shares_of(const ParallelSettings& p) {
  Shares s;
  const int64_t shards = p.fsdp ? p.fsdp->shards() : p.fsdp1 ? p.fsdp1->shards() : 1;
  s.weights = s.gradients = s.states = 1 / static_cast<double>(shards);
  if (p.zero1) s.states = 1 / static_cast<double>(p.zero1->world);
  if (p.deepspeed) s = shares_of(*p.deepspeed);
  if (p.tensor)
    for (double* part : {&s.weights, &s.gradients, &s.states}) *part /= static_cast<double>(p.tensor->world);
  return s;
}

}  // namespace

Bytes least_need(const Job& job, int64_t parameters) {
  const auto all = static_cast<double>(parameters);
  if (job.parallel.megatron) return Bytes{static_cast<int64_t>(all * least_of_megatron(*job.parallel.megatron))};
  if (job.parallel.torchtitan) return Bytes{static_cast<int64_t>(all * least_of_torchtitan(job))};
  const bool on_host = job.swap_blocks > 0 || (job.parallel.fsdp1 && job.parallel.fsdp1->offload);
  if (job.tuning.quantization || on_host || job.framework != Framework::pytorch) return {};
  const Shares share = shares_of(job.parallel);
  const double element = in_half(job) ? 2 : 4;
  double each = element * share.weights;
  const bool all_trained = !job.tuning.adapter && job.tuning.frozen.empty() && job.tuning.trainable.empty();
  const bool gradients_leave = job.optimizer_in_backward || (job.offload_optimizer && job.offload_optimizer->gradients);
  if (all_trained && !gradients_leave) each += element * share.gradients;
  if (all_trained && !job.offload_optimizer && job.optimizer.name != "none") each += state_bytes(job) * share.states;
  return Bytes{static_cast<int64_t>(each * all)};
}

int64_t whole_parameters(const Job& job, int64_t of_rank) {
  const ParallelSettings& p = job.parallel;
  if (p.megatron || p.torchtitan) return 0;
  // Tensor parallelism leaves whole what its plan does not name, embeddings among it: a rank's part says nothing about the sum.
  const bool zero_3 = p.deepspeed && p.deepspeed->stage == 3;
  const int64_t ranks = p.fsdp ? p.fsdp->shards() : p.fsdp1 ? p.fsdp1->shards() : zero_3 ? p.deepspeed->world : 1;
  constexpr double kPadded = 0.95;  // rank 0 has padded shards, and norms are on every rank
  return ranks == 1 ? of_rank : static_cast<int64_t>(kPadded * static_cast<double>(of_rank) * static_cast<double>(ranks));
}

}  // namespace plimsoll
