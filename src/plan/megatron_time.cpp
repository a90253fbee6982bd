#include <algorithm>

#include "model/decoder/megatron.h"
#include "plan/layout_time.h"

namespace plimsoll {

LayoutTime megatron_time(const Job& job, const Simulation& simulation, const StepTime& times, const Interconnect& links) {
  const MegatronSettings& m = *job.program.megatron;
  const MegatronConfig c(job.family, job.config, m);
  const auto micro = static_cast<double>(job.accumulation), layers = static_cast<double>(c.layers) / static_cast<double>(m.pipeline);
  const double tokens = static_cast<double>(job.batch) * static_cast<double>(job.seq / m.context);
  const double hidden = tokens * static_cast<double>(c.hidden) * 2;                     // bytes
  const double compute = compute_seconds(times), again = job.checkpointing.on ? 1 : 0;  // a recomputed layer repeats forward's traffic
  LayoutTime t;
  t.bubble = bubble_seconds(compute / micro, m.pipeline, m.virtual_stages);
  const int64_t inner = m.tensor * m.context;  // ranks are numbered tensor first, then context, data, pipeline
  // Two layers of each block gather and reduce-scatter (or reduce) in forward and in backward; sequence parallelism gathers twice more.
  if (m.tensor > 1) t.communication += micro * layers * ((m.sequence ? 10 : 8) + 4 * again) * links.gather(hidden, {m.tensor, 1});
  if (m.context > 1) {  // keys and values go round, and their gradients with them
    const double kv = tokens * 4 * static_cast<double>(std::max(c.groups, m.tensor) * c.channels) / static_cast<double>(m.tensor);
    const double ring = micro * layers * (3 + again) * static_cast<double>(m.context - 1) * links.send(kv, {m.context, m.tensor});
    t.communication += std::max(0.0, ring - kHiddenTraffic * compute / 4);
  }
  if (m.expert > 1) {
    const auto moe = static_cast<double>(std::count(c.is_moe.begin(), c.is_moe.end(), true)) / static_cast<double>(m.pipeline);
    const double routed = hidden * static_cast<double>(c.top_k);
    t.communication += micro * moe * (4 + 2 * again) * links.exchange(routed, {m.expert, m.expert_tensor_size()});
  }
  if (m.pipeline > 1) {
    const double sent = hidden / static_cast<double>(m.sequence ? m.tensor : 1);
    t.communication += micro * 2 * static_cast<double>(m.virtual_stages) * links.send(sent, {m.pipeline, inner * m.data()});
  }
  if (const int64_t shards = m.shards(); shards > 1) {  // fp32 gradients are reduced, bf16 weights gathered
    const RankGroup group{shards, m.tensor};
    const auto weights = static_cast<double>(simulation.parameters);
    const double seconds =
        m.distributed_optimizer ? links.gather(4 * weights, group) + links.gather(2 * weights, group) : links.reduce(4 * weights, group);
    t.communication += m.overlap ? std::max(0.0, seconds - kHiddenTraffic * compute / micro) : seconds;
  }
  return t;
}

}  // namespace plimsoll
