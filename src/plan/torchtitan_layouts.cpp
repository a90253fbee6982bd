// Layouts of torchtitan: tensor parallelism inside a node, pipelines, context parallelism, and fully_shard over the rest, in one copy of
// the weights or in one for each node (HSDP).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "model/decoder/torchtitan.h"
#include "plan/layout_kinds.h"
#include "plan/without_defaults.h"
#include "program/program.h"

namespace plimsoll {

namespace {

// As torchtitan itself would find it, with a batch that every schedule takes.
bool titan_possible(Job job, const TorchtitanSettings& t) {
  job.parallel = {};
  job.program = {};
  job.program.torchtitan = t;
  job.precision = Precision::fp32;
  job.batch = t.pipeline;
  job.accumulation = 1;
  return torchtitan_program().problems(job).empty();
}

void add_titan(const Job& job, const TorchtitanSettings& t, bool needs_more, std::vector<Spread>& out) {
  if (!titan_possible(job, t)) return;
  Spread s;
  s.needs_more = needs_more;
  s.settings = {{"torchtitan", without_defaults(to_json(t), to_json(TorchtitanSettings{}))}, {"precision", "fp32"}};
  if (!job.clip) s.settings.set("clip", 1);  // training.max_norm; it always clips
  s.replicas = t.data();
  s.pipeline = t.pipeline;
  s.micro_batches = t.virtual_stages > 1 ? t.pipeline : 1;
  out.push_back(std::move(s));
}

// In one or two chunks a stage. Its weights are gathered once a step, which copies of them would not make much faster.
void add_titan_pipelines(const Job& job, TorchtitanSettings t, std::vector<Spread>& out) {
  t.replicas = 1;
  for (const int64_t chunks : {1, 2}) {
    t.virtual_stages = chunks;
    t.schedule = chunks > 1 ? PipelineKind::interleaved : PipelineKind::one_f_one_b;
    add_titan(job, t, chunks > 1, out);
  }
}

// One copy of the weights over all ranks, or one for every node; blocks are resharded after forward, or kept whole.
void add_titan_shards(const Job& job, TorchtitanSettings t, int64_t node, std::vector<Spread>& out) {
  std::vector<int64_t> copies{1};
  if (t.world > node && t.world % node == 0 && node % (t.tensor * t.context) == 0) copies.push_back(t.world / node);
  for (const int64_t n : copies)
    for (const ReshardPolicy policy : {ReshardPolicy::by_default, ReshardPolicy::never}) {
      t.replicas = n;
      t.reshard = policy;
      add_titan(job, t, n > 1 || policy == ReshardPolicy::never, out);
    }
}

}  // namespace

Spreads torchtitan_spreads(const LayoutRequest& r) {
  if (!torchtitan_model(r.job)) return {{}, "torchtitan has no model of this shape"};
  if (r.job.optimizer.name != "AdamW" && r.job.optimizer.name != "Adam") return {{}, "torchtitan knows Adam and AdamW alone"};
  TorchtitanSettings t = r.job.program.torchtitan.value_or(TorchtitanSettings{});
  t.world = r.world;
  t.stage.reset();
  t.layers.clear();
  t.micro_batches = 0;
  t.reshard = ReshardPolicy::by_default;
  std::vector<Spread> out;
  for (t.tensor = 1; t.tensor <= r.cluster.node; t.tensor *= 2)
    for (t.pipeline = 1; t.tensor * t.pipeline <= r.world; t.pipeline *= 2)
      for (t.context = 1; t.context == 1 || r.job.seq / t.context >= kTokensOfRank; t.context *= 2) {
        if (r.world % (t.tensor * t.pipeline * t.context) != 0) break;
        if (t.pipelined())
          add_titan_pipelines(r.job, t, out);
        else
          add_titan_shards(r.job, t, r.cluster.node, out);
      }
  return {out, "it takes 2 devices or more, and heads and tokens that can be shared by them"};
}

// The first stage has the most micro-batches in flight, the second the most layers of those after it, the last one the logits. A
// pipeline has the optimizer's states from the start, so that one step is the steady state.
std::vector<Job> torchtitan_ranks(const Job& job) {
  const TorchtitanSettings& t = *job.program.torchtitan;
  std::vector<Job> out;
  for (const int64_t stage : std::set<int64_t>{0, std::min<int64_t>(1, t.pipeline - 1), t.pipeline - 1}) {
    out.push_back(job);
    out.back().program.torchtitan->stage = stage;
    if (!t.pipelined()) continue;
    out.back().warm_optimizer = true;
    out.back().steps = 1;
  }
  return out;
}

}  // namespace plimsoll
