#include "plan/megatron_time.h"

#include <algorithm>

#include "model/megatron.h"

namespace plimsoll {

namespace {

// One 400 Gb/s adapter for each device, at four fifths of its rate: what DGX H100 systems have.
constexpr double kBetweenNodes = 40e9;
constexpr double kHidden = 0.8;  // of the time of kernels, behind which traffic between replicas can hide

// Of the ranks that a kind of traffic is between, `inner` neighbours are nearer to each other.
double rate(int64_t ranks, int64_t inner, double node) { return ranks * inner <= kDevicesOfNode ? node : std::min(node, kBetweenNodes); }

double part(int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); }

}  // namespace

LayoutTime megatron_time(const Job& job, const Simulation& simulation, double compute, double node) {
  const MegatronSettings& m = *job.parallel.megatron;
  const MegatronConfig c(job.family, job.config, m);
  const auto micro = static_cast<double>(job.accumulation), layers = static_cast<double>(c.layers) / static_cast<double>(m.pipeline);
  const double tokens = static_cast<double>(job.batch) * static_cast<double>(job.seq / m.context);
  const double hidden = tokens * static_cast<double>(c.hidden) * 2;  // bytes
  LayoutTime t;
  t.bubble = compute / micro * static_cast<double>(m.pipeline - 1) / static_cast<double>(m.virtual_stages);
  // Two layers of each block gather and reduce-scatter (or reduce) in forward and in backward; sequence parallelism gathers twice more.
  if (m.tensor > 1) t.communication += micro * layers * (m.sequence ? 10 : 8) * hidden * part(m.tensor) / rate(m.tensor, 1, node);
  if (m.context > 1) {  // keys and values go round, and their gradients with them
    const double kv = tokens * 4 * static_cast<double>(std::max(c.groups, m.tensor) * c.channels) / static_cast<double>(m.tensor);
    const double ring = micro * layers * 3 * kv * static_cast<double>(m.context - 1) / rate(m.context, m.tensor, node);
    t.communication += std::max(0.0, ring - kHidden * compute / 4);
  }
  if (m.expert > 1) {
    const auto moe = static_cast<double>(std::count(c.is_moe.begin(), c.is_moe.end(), true)) / static_cast<double>(m.pipeline);
    t.communication +=
        micro * moe * 4 * hidden * static_cast<double>(c.top_k) * part(m.expert) / rate(m.expert, m.expert_tensor_size(), node);
  }
  if (m.pipeline > 1)
    t.communication += micro * 2 * static_cast<double>(m.virtual_stages) * hidden / static_cast<double>(m.sequence ? m.tensor : 1) /
                       rate(m.pipeline, m.tensor * m.context, node);
  if (const int64_t shards = m.shards(); shards > 1) {  // fp32 gradients are reduced, bf16 weights gathered
    const double moved = static_cast<double>(simulation.parameters) * (m.distributed_optimizer ? 6 : 8) * part(shards);
    const double seconds = moved / rate(shards, m.tensor, node);
    t.communication += m.overlap ? std::max(0.0, seconds - kHidden * compute / micro) : seconds;
  }
  return t;
}

}  // namespace plimsoll
