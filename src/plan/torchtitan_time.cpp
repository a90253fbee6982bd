#include <algorithm>

#include "model/decoder/torchtitan.h"
#include "plan/communication.h"
#include "plan/layout_time.h"
#include "step/torchtitan_checks.h"
#include "step/torchtitan_step.h"

namespace plimsoll {

namespace {

// Ranks are numbered tensor first, then context, shards, copies, stages (ParallelDims.build_mesh).
struct TitanTraffic {
  const Job& job;
  const TorchtitanSettings& settings;
  const TorchtitanConfig config;
  const Simulation& simulation;
  const StepTime& times;
  const Interconnect& links;

  double micro_batches() const { return static_cast<double>(torchtitan_micro_batches(job)); }
  double micro_steps() const { return micro_batches() * static_cast<double>(job.accumulation); }
  double blocks() const { return groups_of(simulation) - 1; }
  double tokens() const {  // of a micro-batch, on this rank
    return static_cast<double>(job.batch) / micro_batches() * static_cast<double>(job.seq / settings.context);
  }
  double hidden() const { return tokens() * static_cast<double>(config.dim) * 2; }  // bytes

  // A pipeline gathers before its first micro-batch, behind whose forward that hides, and reduces after its last, behind nothing.
  double shards() const {
    const FsdpSettings f = torchtitan_sharding(settings);
    if (!settings.pipelined()) return sharding_seconds(job, f, settings.tensor, simulation, times, links);
    const GroupSeconds g = group_seconds(job, f, settings.tensor, simulation, links);
    const double gathered = std::max(g.forward, groups_of(simulation) * g.forward - kOverlap * times.forward / micro_steps());
    return static_cast<double>(job.accumulation) * (gathered + groups_of(simulation) * g.reduce);
  }

  // Embedding and head are half a block's; logits are gathered unless the loss is computed from shards.
  double tensor() const {
    if (settings.tensor == 1) return 0;
    const RankGroup ranks{settings.tensor, 1};
    const double each = tensor_block_seconds(job.checkpointing, true, hidden(), ranks, links);
    const double ends = tensor_block_seconds({}, true, hidden(), ranks, links) / 2;
    const double logits = settings.loss_parallel ? 0 : links.gather(tokens() * static_cast<double>(config.vocab) * 2, ranks);
    return micro_steps() * (blocks() * each + ends + logits);
  }

  // Keys and values, of as many heads as there are queries, come from all ranks in forward and again in backward, when their gradients go
  // round. One gather waits; a ring of them hides behind the products of attention.
  double context() const {
    if (settings.context == 1) return 0;
    const RankGroup ranks{settings.context, settings.tensor};
    const auto n = static_cast<double>(settings.context);
    const double kv = tokens() * 4 * static_cast<double>(config.heads * config.head_dim) / static_cast<double>(settings.tensor);
    const double passes = job.checkpointing.on && job.checkpointing.save.empty() ? 3 : 2, round = n * links.send(kv, ranks);
    if (settings.gathers_context) return micro_steps() * blocks() * (passes * links.gather(n * kv, ranks) + round);
    return std::max(0.0, micro_steps() * blocks() * (passes + 1) * round - kHiddenTraffic * compute_seconds(times) / 4);
  }

  // The hidden states of a micro-batch to the next stage, and their gradients back, of each chunk.
  double stages() const {
    const RankGroup ranks{settings.pipeline, settings.world / settings.pipeline};
    const double sent = hidden() / static_cast<double>(settings.tensor);
    return 2 * micro_steps() * static_cast<double>(settings.virtual_stages) * links.send(sent, ranks);
  }
};

}  // namespace

LayoutTime torchtitan_time(const Job& job, const Simulation& simulation, const StepTime& times, const Interconnect& links) {
  const TorchtitanSettings& settings = *job.program.torchtitan;
  const TitanTraffic traffic{job, settings, TorchtitanConfig(job.family, job.config), simulation, times, links};
  LayoutTime t;
  const double micro_batch = compute_seconds(times) / traffic.micro_steps();
  t.bubble = static_cast<double>(job.accumulation) * bubble_seconds(micro_batch, settings.pipeline, settings.virtual_stages);
  t.communication = traffic.shards() + traffic.tensor() + traffic.context() + traffic.stages();
  return t;
}

}  // namespace plimsoll
