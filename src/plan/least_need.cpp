#include "plan/least_need.h"

#include "step/optimizer_costs.h"

namespace plimsoll {

namespace {

bool in_half(const Job& job) { return job.precision == Precision::bf16 || job.precision == Precision::fp16; }

// Bytes a parameter.
double state_bytes(const Job& job) {
  for (const OptimizerEntry& e : optimizer_registry()) {
    if (job.optimizer.name != e.name) continue;
    const auto cost = optimizer_cost(e, job.optimizer.args.values(), in_half(job) ? CostPrecision::bf16 : CostPrecision::fp32);
    if (cost) return 0.9 * cost->states;  // factored states are smaller where matrices are larger
  }
  return 0;
}

// 2 + 4 bytes of weights and gradients, 12 of fp32 weights and Adam's states over the ranks of the distributed optimizer.
double least_of_megatron(const MegatronSettings& m) {
  const double rank = 6 + 12.0 / static_cast<double>(m.distributed_optimizer ? m.shards() : 1);
  return rank / static_cast<double>(m.tensor * m.pipeline * m.expert);
}

struct Shares {
  double weights = 1, gradients = 1, states = 1;  // of the model, on this rank
};

// Gradients that accumulate whole are counted as shards: a bound may be lower.
Shares shares_of(const ParallelSettings& p) {
  Shares s;
  const int64_t shards = p.fsdp ? p.fsdp->shards() : p.fsdp1 ? p.fsdp1->shards() : 1;
  s.weights = s.gradients = s.states = 1 / static_cast<double>(shards);
  if (p.zero1) s.states = 1 / static_cast<double>(p.zero1->world);
  if (p.deepspeed) s.states = p.deepspeed->offload_optimizer ? 0 : 1 / static_cast<double>(p.deepspeed->world);
  if (p.deepspeed) s.gradients = 1 / static_cast<double>(p.deepspeed->world);
  if (p.tensor)
    for (double* part : {&s.weights, &s.gradients, &s.states}) *part /= static_cast<double>(p.tensor->world);
  return s;
}

}  // namespace

Bytes least_need(const Job& job, int64_t parameters) {
  const auto all = static_cast<double>(parameters);
  if (job.parallel.megatron) return Bytes{static_cast<int64_t>(all * least_of_megatron(*job.parallel.megatron))};
  const bool on_host = job.swap_blocks > 0 || (job.parallel.fsdp1 && job.parallel.fsdp1->offload);
  if (job.tuning.quantization || on_host || job.parallel.torchtitan || job.framework != Framework::pytorch) return {};
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
  const int64_t ranks = p.fsdp ? p.fsdp->shards() : p.fsdp1 ? p.fsdp1->shards() : 1;
  constexpr double kPadded = 0.95;  // rank 0 has padded shards, and norms are on every rank
  return ranks == 1 ? of_rank : static_cast<int64_t>(kPadded * static_cast<double>(of_rank) * static_cast<double>(ranks));
}

}  // namespace plimsoll
