// A layout as torchtitan's configuration (torchtitan/config/job_config.py of 2025-11).
#include "model/decoder/torchtitan.h"
#include "plan/layout_launch.h"
#include "step/torchtitan_checks.h"

namespace plimsoll {

namespace {

const char* schedule_name(PipelineKind k) {
  switch (k) {
    case PipelineKind::gpipe: return "GPipe";
    case PipelineKind::one_f_one_b: return "1F1B";
    case PipelineKind::interleaved: return "Interleaved1F1B";
  }
  return "";
}

const char* policy_name(ReshardPolicy p) {
  return p == ReshardPolicy::by_default ? "default" : p == ReshardPolicy::always ? "always" : "never";
}

// Degrees multiply to the number of processes; those of context are not among the shards there.
void add_degrees(const Job& job, std::vector<TorchtitanKey>& out) {
  const TorchtitanSettings& t = *job.program.torchtitan;
  const auto add = [&](const char* key, nlohmann::json value) { out.push_back({"parallelism", key, std::move(value)}); };
  add("data_parallel_replicate_degree", t.replicas);
  add("data_parallel_shard_degree", t.data() / t.replicas);
  add("tensor_parallel_degree", t.tensor);
  add("context_parallel_degree", t.context);
  if (t.context > 1 && !t.gathers_context) add("context_parallel_rotate_method", "alltoall");
  add("pipeline_parallel_degree", t.pipeline);
  if (t.pipelined()) {
    add("pipeline_parallel_schedule", schedule_name(t.schedule));
    add("pipeline_parallel_microbatch_size", job.batch / torchtitan_micro_batches(job));
  }
  if (t.tensor > 1 && !t.loss_parallel) add("disable_loss_parallel", true);
  add("fsdp_reshard_after_forward", policy_name(t.reshard));
}

void add_checkpoints(const Checkpointing& c, std::vector<TorchtitanKey>& out) {
  const char* section = "activation_checkpoint";
  const bool selective = !c.save.empty() || c.every > 1;
  out.push_back({section, "mode", !c.on ? "none" : selective ? "selective" : "full"});
  if (c.on && selective) out.push_back({section, "selective_ac_option", c.save.empty() ? std::to_string(c.every) : "op"});
}

}  // namespace

std::vector<TorchtitanKey> torchtitan_keys(const Layout& l) {
  const Job& job = l.job;
  const TorchtitanModel* model = torchtitan_model(job);
  std::vector<TorchtitanKey> out;
  if (model) out = {{"model", "name", model->name}, {"model", "flavor", model->flavor}};
  const nlohmann::json& args = job.optimizer.args.values();
  const char* form = args.value("fused", false) ? "fused" : args.value("foreach", true) ? "foreach" : "for-loop";
  out.push_back({"optimizer", "name", job.optimizer.name});
  out.push_back({"optimizer", "implementation", form});
  out.push_back({"training", "local_batch_size", job.batch});
  out.push_back({"training", "global_batch_size", l.global_batch});
  out.push_back({"training", "seq_len", job.seq});
  if (job.clip) out.push_back({"training", "max_norm", *job.clip});
  add_degrees(job, out);
  add_checkpoints(job.checkpointing, out);
  return out;
}

}  // namespace plimsoll
