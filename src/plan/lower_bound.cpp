#include "plan/lower_bound.h"

#include <algorithm>

#include "model/decoder/torchtitan.h"
#include "step/optimizer_costs.h"
#include "step/torchtitan_checks.h"

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

// What a block of Llama's kind keeps of each token for backward, in bytes, over `tensor` ranks: its input under a checkpoint; the result of
// one of the two large products, too, when products are kept; without one what silu, its product with the other and the last product need,
// queries and result of attention, and the two inputs of products, whole. Under autocast, too: what is kept is in two bytes or more.
double least_kept(const TorchtitanConfig& c, const Checkpointing& checkpointing, int64_t tensor) {
  const auto dim = static_cast<double>(c.dim), ffn = static_cast<double>(c.ffn), ranks = static_cast<double>(tensor);
  if (!checkpointing.on) return 2 * (4 * ffn + 2 * static_cast<double>(c.heads * c.head_dim)) / ranks + 2 * 2 * dim;
  return 2 * (checkpointing.save.empty() ? dim : ffn + dim) / ranks;
}

// Of the first stage of a pipeline, which has as many micro-batches in flight as there are stages.
double torchtitan_activations(const Job& job) {
  const TorchtitanSettings& t = *job.program.torchtitan;
  const TorchtitanConfig c(job.family, job.config);
  const int64_t micro = torchtitan_micro_batches(job);
  const int64_t layers = !t.layers.empty() ? t.layers.front()
                         : t.pipelined()   ? std::max<int64_t>(1, (c.layers + 2) / t.pipeline - 1)
                                           : c.layers;
  const double tokens = static_cast<double>(job.batch) / static_cast<double>(micro) * static_cast<double>(job.seq / t.context);
  const double in_flight = static_cast<double>(layers * std::min(micro, t.pipeline));
  return in_flight * tokens * least_kept(c, job.checkpointing, t.tensor);
}

// Of transformers' models of the same shape, trained whole by their own layers on sequences that are all as long.
double least_activations(const Job& job) {
  const std::vector<std::string> families = torchtitan_families();
  const bool known = std::find(families.begin(), families.end(), job.family) != families.end() && job.inputs == InputKind::lm &&
                     job.config.text({"hidden_act"}, "silu") == "silu";
  const bool plain = !job.tuning.adapter && job.tuning.frozen.empty() && job.tuning.trainable.empty() && !job.loss_settings.liger.any() &&
                     job.offload_activations == Offload::none && !job.compile && job.longest == 0 && job.optimizer.name != "none";
  if (!known || !plain) return 0;
  const TorchtitanConfig c(job.family, job.config);
  const double tokens = static_cast<double>(job.batch) * static_cast<double>(job.seq) * static_cast<double>(c.layers);
  return tokens * least_kept(c, job.checkpointing, job.parallel.tensor ? job.parallel.tensor->world : 1);
}

// Over the ranks of fully_shard, on the largest stage at least: fp32 weights, states and gradients; or weights and states and what the
// first backward needs. A pipeline keeps bf16 weights, and in the end fp32 gradients, whole; weights that are not resharded are, too.
double least_of_torchtitan(const Job& job, double parameters) {
  const TorchtitanSettings& t = *job.program.torchtitan;
  const double own = parameters / static_cast<double>(t.tensor * t.pipeline), shard = own / static_cast<double>(t.shards());
  const double states = (4 + state_bytes(job)) * shard, whole = t.pipelined() || t.reshard == ReshardPolicy::never ? own : 0;
  return std::max(states + (t.pipelined() ? 6 * own : 4 * shard), states + 2 * whole + torchtitan_activations(job));
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

Bytes lower_bound(const Job& job, int64_t parameters) {
  const auto all = static_cast<double>(parameters);
  if (job.program.megatron) return Bytes{static_cast<int64_t>(all * least_of_megatron(*job.program.megatron))};
  if (job.program.torchtitan) return Bytes{static_cast<int64_t>(least_of_torchtitan(job, all))};
  const bool on_host = job.swap_blocks > 0 || (job.parallel.fsdp1 && job.parallel.fsdp1->offload);
  if (job.tuning.quantization || on_host || job.program.framework != Framework::pytorch) return {};
  const Shares share = shares_of(job.parallel);
  const double element = in_half(job) ? 2 : 4;
  const double weights = element * share.weights;
  double gradients = 0, states = 0;
  const bool all_trained = !job.tuning.adapter && job.tuning.frozen.empty() && job.tuning.trainable.empty();
  const bool gradients_leave = job.optimizer_in_backward || (job.offload_optimizer && job.offload_optimizer->gradients);
  if (all_trained && !gradients_leave) gradients = element * share.gradients;
  if (all_trained && !job.offload_optimizer && job.optimizer.name != "none") states = state_bytes(job) * share.states;
  const auto& fsdp = job.parallel.fsdp;
  const double whole = fsdp && !fsdp->reshard ? 2 * all / static_cast<double>(job.parallel.tensor ? job.parallel.tensor->world : 1) : 0;
  // Gradients come when what was kept for them goes.
  return Bytes{static_cast<int64_t>((weights + states) * all + std::max(gradients * all, whole + least_activations(job)))};
}

int64_t whole_parameters(const Job& job, int64_t of_rank) {
  if (job.program.has_stages()) return 0;
  const ParallelSettings& p = job.parallel;
  // Tensor parallelism leaves whole what its plan does not name, embeddings among it: a rank's part says nothing about the sum.
  const bool zero_3 = p.deepspeed && p.deepspeed->stage == 3;
  const int64_t ranks = p.fsdp ? p.fsdp->shards() : p.fsdp1 ? p.fsdp1->shards() : zero_3 ? p.deepspeed->world : 1;
  constexpr double kPadded = 0.95;  // rank 0 has padded shards, and norms are on every rank
  return ranks == 1 ? of_rank : static_cast<int64_t>(kPadded * static_cast<double>(of_rank) * static_cast<double>(ranks));
}

}  // namespace plimsoll
