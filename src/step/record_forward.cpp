#include "ops/reduce.h"
#include "step/model_of_job.h"
#include "util/text.h"

namespace plimsoll {

void check_forward(const Job& job, Problems& out) {
  const ModelEntry* entry = nullptr;
  if (!succeeds([&] { entry = &entry_of(job); }, out)) return;
  if (entry->family->is_transformers() ? entry->classes.empty() : !entry->family->programs.jax)
    out.push_back({"[job] framework jax: " + entry->name + " is neither of transformers nor written for JAX",
                   "families of transformers can be asked about, vit among them, and " +
                       join(families_where([](const Family& f) { return f.programs.jax; }), ", ")});
}

// flax computes in `dtype` and keeps parameters in `param_dtype`: the pass runs in the lower type without autocast, and xla/ gives
// the parameters their own type back.
RecordedForward record_forward(const Job& asked) {
  Job job = asked;
  if (job.precision == Precision::amp) job.precision = Precision::bf16;
  if (job.precision == Precision::amp_fp16) job.precision = Precision::fp16;
  Dialect dialect;
  dialect.attention = job.attention == AttentionKernel::automatic ? AttentionKernel::eager : job.attention;
  dialect.kernels = {};
  Tape tape(dialect);
  Dataflow dataflow(tape);
  tape.dataflow = &dataflow;
  Build build(tape);
  const std::unique_ptr<Model> model = build_model(build, job);
  RecordedForward out;
  for (const Parameter* p : model->parameters()) {
    const bool trained = p->value.requires_grad();
    dataflow.set_role(p->value, trained ? DataflowValue::Role::parameter : DataflowValue::Role::frozen_parameter);
    out.parameters += p->value.numel();
    if (trained) out.trainable += p->value.numel();
    out.parameter_list.push_back(record_of(*p, tape));
  }
  const Batch batch = make_batch(tape, job, *model, job.batch, job.seq);
  for (const Tensor& t : {batch.input_ids, batch.pixel_values, batch.labels})
    if (t) dataflow.set_role(t, DataflowValue::Role::input);
  for (const Tensor& t : batch.own) dataflow.set_role(t, DataflowValue::Role::input);
  tape.begin_phase(Phase::forward);
  out.sample = model->sample(job.seq);
  const Output result = model->forward(batch);
  out.loss = (job.loss == Loss::logits_sum ? sum(result.kept.front()) : result.loss).body().value;
  out.values = std::move(dataflow.values);
  out.trace = std::move(tape.trace);
  tape.dataflow = nullptr;
  return out;
}

}  // namespace plimsoll
