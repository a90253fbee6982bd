#include "job/megatron_arguments.h"

#include <fmt/format.h>

#include "util/bytes.h"

namespace plimsoll {

std::vector<std::string> megatron_layout_arguments(const Job& job) {
  const MegatronSettings& m = *job.program.megatron;
  std::vector<std::string> out{fmt::format("--bf16 --micro-batch-size {} --global-batch-size {}", job.batch,
                                           checked_mul(checked_mul(job.batch, job.accumulation), m.data()))};
  std::string degrees = fmt::format("--tensor-model-parallel-size {} --pipeline-model-parallel-size {}", m.tensor, m.pipeline);
  if (m.context > 1) degrees += fmt::format(" --context-parallel-size {} --cp-comm-type {}", m.context, m.all_to_all ? "a2a" : "p2p");
  if (m.expert > 1)
    degrees += fmt::format(" --expert-model-parallel-size {} --expert-tensor-parallel-size {}", m.expert, m.expert_tensor_size());
  out.push_back(std::move(degrees));
  if (m.virtual_stages > 1) out.push_back(fmt::format("--num-virtual-stages-per-pipeline-rank {}", m.virtual_stages));
  if (!m.layers.empty())
    out.push_back(
        fmt::format("--decoder-first-pipeline-num-layers {} --decoder-last-pipeline-num-layers {}", m.layers.front(), m.layers.back()));
  std::string switches;
  const auto add = [&](bool on, const char* text) { switches += on ? (switches.empty() ? "" : " ") + std::string(text) : ""; };
  add(m.sequence, "--sequence-parallel");
  add(m.distributed_optimizer, "--use-distributed-optimizer");
  add(m.overlap, "--overlap-grad-reduce");
  add(!m.fused_gradients, "--no-gradient-accumulation-fusion");
  add(m.fused_loss, "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te");
  add(m.local, "--transformer-impl local");
  add(m.attention == MegatronAttention::flash, "--attention-backend flash");
  add(job.checkpointing.on, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  if (!switches.empty()) out.push_back(std::move(switches));
  return out;
}

}  // namespace plimsoll
