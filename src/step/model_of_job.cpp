#include "step/model_of_job.h"

#include <set>

#include "nn/adapter.h"
#include "nn/layers.h"
#include "tensor/inference.h"
#include "util/text.h"

namespace plimsoll {

namespace {

DType weight_type(Precision p) {
  if (p == Precision::bf16) return DType::bfloat16;
  return p == Precision::fp16 ? DType::float16 : DType::float32;
}

void check_patched(const ModelEntry& entry, const char* library, bool KernelSupport::*patched) {
  if (entry.family->kernels.*patched) return;
  throw Error(std::string("[loss_kernel] ") + library + " does not patch " + entry.name,
              "it patches " + join(families_where([=](const Family& f) { return f.kernels.*patched; }), ", "));
}

void check_loss(const Job& job, const ModelEntry& entry, const Model& model) {
  const LossSettings& loss = job.loss_settings;
  const std::string kernel = to_string(loss.kernel);
  if (loss.kernel != LossKernel::model && !model.takes_loss_kernels())
    throw Error("[loss_kernel] " + kernel + ": " + job.family + " is not a causal language model with a head", "leave loss_kernel out");
  if (loss.kernel != LossKernel::model && job.loss == Loss::logits_sum)
    throw Error("[loss_kernel] " + kernel + ": loss logits-sum has no cross-entropy", "leave one of the two out");
  if (loss.kernel == LossKernel::liger) check_patched(entry, "Liger", &KernelSupport::liger_loss);
  if (loss.kernel == LossKernel::cut) check_patched(entry, "cut-cross-entropy", &KernelSupport::cut_cross_entropy);
  if (loss.liger.any() && !entry.family->kernels.liger_layers)
    throw Error("[liger_kernels] Liger's layers are not modelled in " + entry.name,
                "they are in " + join(families_where([](const Family& f) { return f.kernels.liger_layers; }), ", "));
}

void add_tokens(Tape& tape, const Job& job, int64_t samples, int64_t length, Batch& batch) {
  batch.shape = batch_shape(job.collation, samples, length);
  const Dims sizes{batch.shape.rows, batch.shape.tokens};
  batch.input_ids = empty(tape, sizes, DType::int64);
  if (batch.shape.padding != Padding::none) batch.attention_mask = empty(tape, sizes, DType::int64);
  if (batch.shape.packed_samples) batch.position_ids = empty(tape, sizes, DType::int64);
  // Models would count positions on their part of the tokens.
  if (job.parallel.tensor && job.parallel.tensor->sequence) batch.position_ids = empty(tape, {1, sizes[1]}, DType::int64);
  batch.labels = batch.input_ids;
  if (job.inputs == InputKind::cls)
    batch.labels = empty(tape, {samples}, DType::int64);
  else if (batch.shape.own_labels)
    batch.labels = empty(tape, sizes, DType::int64);
  if (job.inputs == InputKind::pair) batch.pair_labels = empty(tape, {samples}, DType::int64);
}

// Notes what a model runs as blocks, and wraps nothing.
class BlockFinder final : public ModuleHooks {
 public:
  bool wraps(const Module& module) const override {
    const bool part = dynamic_cast<const Embedding*>(&module) || dynamic_cast<const AdapterParameter*>(&module);
    if (!part) paths_.insert(module.path());
    return false;
  }
  bool outside_checkpoints() const override { return false; }
  Tensors before_forward(const Module&, Tensors inputs) override { return inputs; }
  Tensors after_forward(const Module&, Tensors outputs) override { return outputs; }
  std::vector<std::string> paths() const { return {paths_.begin(), paths_.end()}; }

 private:
  mutable std::set<std::string> paths_;
};

}  // namespace

const ModelEntry& entry_of(const Job& job) {
  const ModelEntry* entry = find_model(job.family);
  if (!entry) {
    std::vector<std::string> names;
    for (const ModelEntry& e : model_registry()) names.push_back(e.name);
    throw Error("[model] '" + job.family + "' is not known", did_you_mean(job.family, names));
  }
  if (job.inputs != entry->inputs)
    throw Error("[model] " + entry->name + " takes inputs of kind " + to_string(entry->inputs) + ", not " + to_string(job.inputs),
                std::string("leave inputs out or set it to ") + to_string(entry->inputs));
  if (job.loss == Loss::logits_sum && entry->inputs != InputKind::lm)
    throw Error("[job] loss logits-sum: " + entry->name + " returns its loss alone", "leave loss out");
  return *entry;
}

std::unique_ptr<Model> build_model(Build& build, const Job& job) {
  const ModelEntry& entry = entry_of(job);
  build.dtype = weight_type(job.precision);
  build.load_dtype = build.dtype;
  // peft 0.20, utils/other.py, prepare_model_for_kbit_training: whatever is not quantised goes to fp32.
  if (job.tuning.quantization && job.tuning.quantization->prepare && entry.family->kbit_training) build.dtype = DType::float32;
  build.checkpointing = CheckpointPlan(job.checkpointing);
  build.transformers = job.platform.transformers;
  build.tuning = Tuning(job.tuning, entry.name, entry.family->adapters);
  // transformers' gradient_checkpointing_enable does so for PEFT models, and since 5 for every model of text; checkpoint_wrapper does not.
  const bool wrapped = job.parallel.fsdp && job.parallel.fsdp->checkpoint_inside;
  build.input_require_grads = job.checkpointing.on && !wrapped && (build.tuning.has_adapter() || build.transformers >= Version{5, 0});
  build.loss = job.loss_settings;
  std::unique_ptr<Model> model = entry.make(build, job.config);
  build.tuning.require_all_names_found();
  check_loss(job, entry, *model);
  return model;
}

Batch make_batch(Tape& tape, const Job& job, Model& model, int64_t samples, int64_t length) {
  tape.category = Category::input;
  tape.op = "input";
  Batch batch;
  const DType dtype = weight_type(job.precision);
  auto sample_labels = [&] { return empty(tape, {samples}, DType::int64); };
  switch (job.inputs) {
    case InputKind::image:
      batch.pixel_values = empty(tape, {samples, 3, length, length}, dtype);
      batch.labels = sample_labels();
      break;
    case InputKind::vector:
      batch.numbers = empty(tape, {samples, length}, dtype);
      batch.labels = sample_labels();
      break;
    case InputKind::lm:
    case InputKind::cls:
    case InputKind::pair: add_tokens(tape, job, samples, length, batch); break;
    case InputKind::own: batch.own = model.make_inputs(samples, length, dtype); break;
  }
  if (job.loss == Loss::logits_sum) batch.labels.reset();
  tape.category.reset();
  return batch;
}

ParameterRecord record_of(const Parameter& p, const Tape& tape) {
  return {tape.trace.scope_path(tape.scope_of(p.value)) + "." + p.name, p.elements ? p.elements : p.value.numel(), p.value.requires_grad()};
}

std::vector<std::string> blocks_of(const Job& job) {
  Dialect dialect;
  dialect.attention = job.attention;
  Tape tape(dialect);
  Build build(tape);
  BlockFinder finder;
  build.hooks = &finder;
  build.on_meta = true;
  const std::unique_ptr<Model> model = build_model(build, job);
  const Batch batch = make_batch(tape, job, *model, job.batch, job.seq);
  build.batch = &batch;
  const Inference mode(tape);
  model->forward(batch);
  return finder.paths();
}

}  // namespace plimsoll
