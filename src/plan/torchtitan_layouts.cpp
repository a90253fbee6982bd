// Layouts of torchtitan: tensor parallelism inside a node, pipelines, context parallelism, and fully_shard over the rest, in one copy of
// the weights or in one for each node (HSDP).
#include <algorithm>
#include <set>

#include "model/torchtitan.h"
#include "plan/layout_kinds.h"
#include "plan/without_defaults.h"
#include "step/torchtitan_checks.h"

namespace plimsoll {

namespace {

// As torchtitan itself would find it, with a batch that every schedule takes.
bool titan_possible(Job job, const TorchtitanSettings& t) {
  job.parallel = {};
  job.parallel.torchtitan = t;
  job.precision = Precision::fp32;
  job.batch = t.pipeline;
  job.accumulation = 1;
  try {
    check_torchtitan(job);
    torchtitan_split(TorchtitanConfig(job.family, job.config).layers, t.pipeline * t.virtual_stages);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void add_titan(const Job& job, const TorchtitanSettings& t, std::vector<Spread>& out) {
  if (!titan_possible(job, t)) return;
  Spread s;
  s.settings = {{"torchtitan", without_defaults(to_json(t), to_json(TorchtitanSettings{}))}, {"precision", "fp32"}};
  if (!job.clip) s.settings["clip"] = 1;  // training.max_norm; it always clips
  s.replicas = t.data();
  s.pipeline = t.pipeline;
  s.micro_batches = t.virtual_stages > 1 ? t.pipeline : 1;
  out.push_back(std::move(s));
}

// Of a pipeline in one or two chunks a stage; else with blocks that are resharded after forward, or kept whole.
void add_titan_variants(const Job& job, TorchtitanSettings t, std::vector<Spread>& out) {
  for (const int64_t chunks : {1, 2}) {
    if (!t.pipelined() && chunks > 1) continue;
    t.virtual_stages = chunks;
    t.schedule = chunks > 1 ? PipelineKind::interleaved : PipelineKind::one_f_one_b;
    add_titan(job, t, out);
  }
  if (t.pipelined()) return;
  t.reshard = ReshardPolicy::never;
  add_titan(job, t, out);
}

// One copy of the weights of a stage, or one for every node that the stage has.
std::vector<int64_t> copies_of(const TorchtitanSettings& t, int64_t node) {
  const int64_t ranks = t.world / t.pipeline;
  if (ranks <= node || ranks % node != 0 || node % (t.tensor * t.context) != 0) return {1};
  return {1, ranks / node};
}

}  // namespace

std::vector<Spread> torchtitan_spreads(const LayoutRequest& r) {
  if (!torchtitan_model(r.job)) throw Error("torchtitan has no model of this shape", "");
  if (r.job.optimizer.name != "AdamW" && r.job.optimizer.name != "Adam") throw Error("torchtitan knows Adam and AdamW alone", "");
  TorchtitanSettings t = r.job.parallel.torchtitan.value_or(TorchtitanSettings{});
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
        for (const int64_t copies : copies_of(t, r.cluster.node)) {
          t.replicas = copies;
          add_titan_variants(r.job, t, out);
        }
      }
  if (out.empty()) throw Error("it takes 2 devices or more, and heads and tokens that can be shared by them", "");
  return out;
}

// The first stage has the most micro-batches in flight, the second the most layers of those after it, the last one the logits.
std::vector<Job> torchtitan_ranks(const Job& job) {
  const TorchtitanSettings& t = *job.parallel.torchtitan;
  std::vector<Job> out;
  for (const int64_t stage : std::set<int64_t>{0, std::min<int64_t>(1, t.pipeline - 1), t.pipeline - 1}) {
    out.push_back(job);
    out.back().parallel.torchtitan->stage = stage;
  }
  return out;
}

}  // namespace plimsoll
