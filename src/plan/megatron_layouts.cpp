// Layouts of Megatron-LM: tensor, pipeline, context and expert parallelism, the rest data parallel under its distributed optimizer.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "model/decoder/megatron.h"
#include "plan/layout_kinds.h"
#include "plan/without_defaults.h"
#include "program/program.h"

namespace plimsoll {

namespace {

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) out.push_back(d);
  return out;
}

// Of every stage: equal, or with fewer on the first and the last one, which have the embedding and the head (Megatron's
// decoder-first- and -last-pipeline-num-layers). Nothing when neither can be.
std::optional<std::vector<int64_t>> stage_layers(int64_t layers, int64_t stages) {
  if (layers % stages == 0) return std::vector<int64_t>{};
  std::optional<std::vector<int64_t>> best;
  for (int64_t end = layers / stages; end >= 1 && stages > 2 && !best; --end)
    if ((layers - 2 * end) % (stages - 2) == 0) {
      best = std::vector<int64_t>(static_cast<size_t>(stages), (layers - 2 * end) / (stages - 2));
      best->front() = best->back() = end;
    }
  return best;
}

std::vector<int64_t> stage_counts(int64_t layers) {
  std::vector<int64_t> out = divisors(layers);
  for (int64_t n = 2; n < layers; n *= 2)
    if (layers % n != 0 && stage_layers(layers, n)) out.push_back(n);
  return out;
}

// As Megatron-LM itself would find it, with micro-batches that every schedule takes.
Problems problems_of(Job job, const MegatronSettings& m) {
  job.parallel = {};
  job.program = {};
  job.program.megatron = m;
  job.precision = Precision::bf16;
  job.accumulation = m.pipeline;
  return megatron_program().problems(job);
}

// Over the experts, and with the pipeline in one or two chunks a stage.
void add_variants(const Job& job, MegatronSettings m, int64_t experts, std::vector<Spread>& out) {
  for (m.expert = 1; m.expert <= std::max<int64_t>(1, experts); m.expert *= 2) {
    m.expert_tensor = 1;
    if (m.world % (m.expert * m.pipeline) != 0) return;
    for (m.virtual_stages = 1; m.virtual_stages <= (m.pipeline > 1 && m.layers.empty() ? 2 : 1); ++m.virtual_stages) {
      if (!problems_of(job, m).empty()) continue;
      Spread s;
      s.settings = {{"megatron", without_defaults(to_json(m), to_json(MegatronSettings{}))}, {"precision", "bf16"}};
      s.replicas = m.data();
      s.micro_batches = m.virtual_stages > 1 ? m.pipeline : 1;
      out.push_back(std::move(s));
    }
  }
}

}  // namespace

Spreads megatron_spreads(const LayoutRequest& r) {
  MegatronSettings m = r.job.program.megatron.value_or(MegatronSettings{});
  if (const Problems problems = problems_of(r.job, MegatronSettings{}); !problems.empty()) return {{}, problems.front().what};
  const MegatronConfig whole(r.job.family, r.job.config, MegatronSettings{});
  m.world = r.world;
  m.stage.reset();
  std::vector<Spread> out;
  for (m.tensor = 1; m.tensor <= r.cluster.node; m.tensor *= 2)
    for (const int64_t stages : stage_counts(whole.layers))
      for (m.context = 1; r.job.seq / m.context >= kTokensOfRank || m.context == 1; m.context *= 2) {
        m.pipeline = stages;
        m.layers = *stage_layers(whole.layers, stages);
        m.sequence = m.tensor > 1;
        const int64_t model = m.tensor * stages * m.context;
        if (model > r.world) break;
        if (r.world % model == 0) add_variants(r.job, m, whole.experts, out);
      }
  return {out, ""};
}

// The first stage has the most micro-batches in flight, the last one the logits; those between have less than the first, or, where that
// has fewer layers, less than the second. The optimizer's states are there from the start, so that one step is the steady state.
std::vector<Job> megatron_ranks(const Job& job) {
  const MegatronSettings& m = *job.program.megatron;
  std::set<int64_t> stages{0, m.pipeline - 1};
  if (!m.layers.empty()) stages.insert(1);
  std::vector<Job> out;
  for (const int64_t stage : stages) {
    out.push_back(job);
    out.back().program.megatron->stage = stage;
    out.back().warm_optimizer = true;
    out.back().steps = 1;
  }
  return out;
}

}  // namespace plimsoll
