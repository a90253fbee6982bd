#include "step/torchtitan_step.h"

#include <algorithm>
#include <map>

#include "model/decoder/torchtitan.h"
#include "nn/tensor_parallel.h"
#include "ops/dtensor.h"
#include "ops/loss.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "optim/optimizer.h"
#include "step/clip.h"
#include "step/fsdp.h"
#include "step/largest_stage.h"
#include "step/pipeline_schedule.h"
#include "step/stage_result.h"
#include "step/torchtitan_checks.h"
#include "tensor/kernel_memory.h"

namespace plimsoll {

namespace {

class TorchtitanTrainer {
 public:
  TorchtitanTrainer(const Job& job, int64_t stage, bool details, bool counts_work)
      : job_(job),
        settings_(*job.program.torchtitan),
        stage_(stage),
        micro_batches_(torchtitan_micro_batches(job)),
        details_(details),
        counts_work_(counts_work),
        tape_(dialect(job)),
        build_(tape_),
        config_(job.family, job.config),
        optimizer_(make_optimizer(job.optimizer.name, job.optimizer.args)) {
    tape_.keep_shapes = details;
  }

  Simulation run() {
    make_model();
    optimizer_->attach(parameters_);
    if (job_.warm_optimizer) warm_optimizer();
    if (tape_.dialect.recorder) make_batch();
    for (int64_t i = 0; i < job_.steps; ++i) {
      counting_ = counts_work_ && i == job_.steps - 1;
      step();
    }
    return stage_result(tape_, parameters_, std::move(work_), details_);
  }

 private:
  // One of the parts of the pipeline that this rank has.
  struct Chunk {
    std::unique_ptr<TorchtitanPart> part;
    std::unique_ptr<FullyShard> fsdp;
    bool is_first = true, is_last = true;
    Tensors received, received_gradients;  // a buffer for each micro-batch, for ever
  };

  // fwd_cache of a stage.
  struct InFlight {
    Tensor input, output, loss;
  };

  static Dialect dialect(const Job& job) {
    Dialect d;
    d.attention = job.attention;
    d.item = job.recorded_item;
    d.recorder = d.late_gradient_labels = job.recorded_item.has_value();
    if (d.recorder) return d;
    d.torch = job.platform.torch;
    d.kernels = kernel_memory(job.platform);
    return d;
  }

  TorchtitanPart::Place place(int64_t chunk) const {
    const int64_t parts = settings_.pipeline * settings_.virtual_stages, part = chunk * settings_.pipeline + stage_;
    const std::vector<int64_t> split =
        settings_.layers.empty() ? torchtitan_split(config_.layers, parts, settings_.counts_ends()) : settings_.layers;
    TorchtitanPart::Place p;
    p.count = split[static_cast<size_t>(part)];
    p.embeds = part == 0;
    p.has_head = part == parts - 1;
    return p;
  }

  void make_model() {
    build_.dtype = DType::float32;
    build_.on_meta = true;
    build_.checkpointing = CheckpointPlan(job_.checkpointing);
    if (settings_.tensor > 1) {
      TensorParallelSettings t;
      t.world = settings_.tensor;
      t.sequence = true;
      t.loss_parallel = settings_.loss_parallel;
      build_.tensor_parallel = &tensor_.emplace(t);
    }
    const int64_t parts = settings_.virtual_stages;
    for (int64_t c = 0; c < parts; ++c) {
      Chunk& chunk = chunks_.emplace_back();
      const TorchtitanPart::Place p = place(c);
      chunk.is_first = p.embeds;
      chunk.is_last = p.has_head;
      // Its own maximum was 32,768 tokens, and the table twice that, before it took the length of the run.
      const int64_t positions = settings_.version < Version{2024, 6} ? 2 * 32768 : job_.seq;
      chunk.part = std::make_unique<TorchtitanPart>(build_, config_, settings_, p, positions);
      chunk.fsdp = std::make_unique<FullyShard>(torchtitan_sharding(settings_), *chunk.part, chunk.part->sharded_modules());
      parameters_.insert(parameters_.end(), chunk.fsdp->parameters().begin(), chunk.fsdp->parameters().end());
    }
  }

  int64_t tokens() const { return job_.seq / settings_.context; }
  int64_t samples() const { return job_.batch / micro_batches_; }
  Dims hidden_sizes() const { return {samples(), tokens() / settings_.tensor, config_.dim}; }

  // _setup_forward_recv_info and _create_grad_recv_info, in the first step.
  void make_buffers(Chunk& c) {
    const auto fill = [this](Tensors& buffers) {
      tape_.op = "empty_strided";
      while (static_cast<int64_t>(buffers.size()) < micro_batches_) buffers.push_back(empty(tape_, hidden_sizes(), DType::bfloat16));
    };
    if (!c.is_first) fill(c.received);
    if (!c.is_last) fill(c.received_gradients);
  }

  void make_batch() {
    tape_.category = Category::input;
    tape_.op = "input";
    ids_ = empty(tape_, {job_.batch, tokens()}, DType::int64);
    labels_ = empty(tape_, {job_.batch, tokens()}, DType::int64);
    tape_.category.reset();
  }

  void step() {
    tape_.begin_step();
    if (counting_) tape_.work = &work_;
    tape_.begin_phase(Phase::forward);
    if (!tape_.dialect.recorder) make_batch();  // there one batch is for all steps, and gradients go after each
    drop_gradients();
    settings_.pipelined() ? run_pipelines() : run_batches();
    tape_.begin_phase(Phase::optimizer);
    if (job_.clip) clip_grad_norm(parameters_, mesh());
    update();
    if (tape_.dialect.recorder) drop_gradients();
  }

  void update() {
    optimizer_->step(parameters_);
    for (const Tensor& s : optimizer_->states()) tape_.relabel(s, Category::optimizer_state);
  }

  // States before the first step, from gradients that take no memory of their own.
  void warm_optimizer() {
    tape_.begin_phase(Phase::optimizer);
    for (Parameter* p : parameters_) p->grad = detach(p->value);
    update();
    drop_gradients();
  }

  void drop_gradients() {
    for (Parameter* p : parameters_) p->grad.reset();
  }

  ClipMesh mesh() const {
    ClipMesh all;
    for (const Chunk& c : chunks_) {
      const ClipMesh one = c.fsdp->mesh();
      all.dims = one.dims;
      all.replicas.insert(all.replicas.end(), one.replicas.begin(), one.replicas.end());
    }
    return all;
  }

  // ---- without a pipeline ---------------------------------------------------------------------------------------------------
  void run_batches() {
    const int64_t times = std::min<int64_t>(job_.accumulation, 2);
    for (int64_t i = 0; i < times; ++i) {
      if (tape_.work) work_.begin_micro_step(static_cast<uint16_t>(i));
      tape_.begin_phase(Phase::forward);
      Chunk& chunk = chunks_.front();
      Tensor pred = forward(chunk, ids_, true);
      loss_ = loss_of(pred, labels_);
      if (settings_.keeps_logits()) pred_ = pred;
      pred.reset();
      backward(chunk, loss_, {});
    }
    label_gradients();
  }

  Tensor forward(Chunk& chunk, const Tensor& input, bool sync) {
    Batch batch;
    chunk.is_first ? void(batch.input_ids = input) : batch.own.push_back(input);
    build_.batch = &batch;
    build_.hooks = chunk.fsdp.get();
    Output out = chunk.fsdp->forward(batch, sync);
    build_.batch = nullptr;
    return std::move(out.kept.front());
  }

  void backward(Chunk& chunk, const Tensor& output, const Tensor& gradient) {
    tape_.begin_phase(Phase::backward);
    build_.hooks = chunk.fsdp.get();
    tape_.op = "ones_like";
    run_backward(output, gradient ? gradient : empty_like(output));
    chunk.fsdp->after_backward();
  }

  void label_gradients() {
    for (const Parameter* p : parameters_)
      if (p->grad) tape_.relabel(p->grad, Category::gradient);
  }

  // components/loss.py
  Tensor loss_of(const Tensor& pred, const Tensor& labels) const {
    const int64_t chunks = settings_.loss_chunks;
    if (chunks == 1) return cross_entropy_of(pred, labels);
    const Tensors logits = chunk(pred, chunks, 1), targets = chunk(labels, chunks, 1);
    Tensor total;
    for (size_t i = 0; i < logits.size(); ++i) {
      const Tensor loss = cross_entropy_of(logits[i], targets[i]);
      total = total ? add(total, loss) : loss;
    }
    return mul_scalar(total);
  }

  Tensor cross_entropy_of(const Tensor& pred, const Tensor& labels) const {
    const Tensor logits = to(flatten(pred, 0, 1), DType::float32), target = flatten(labels, 0, 1);
    return tensor_ && settings_.loss_parallel ? sharded_cross_entropy(logits, target) : cross_entropy(logits, target);
  }

  // ---- in a pipeline --------------------------------------------------------------------------------------------------------
  std::vector<PipelineCall> schedule() const {
    if (settings_.schedule == PipelineKind::gpipe) return gpipe_schedule(micro_batches_);
    return pipeline_schedule(settings_.pipeline, stage_, settings_.virtual_stages, executed());
  }

  int64_t executed() const {
    const bool all = tape_.dialect.recorder || settings_.schedule == PipelineKind::gpipe;
    return all ? micro_batches_ : enough_micro_batches(settings_.pipeline, settings_.virtual_stages, micro_batches_);
  }

  // forward_backward_step of each batch of an accumulation; the second stands for the others.
  void run_pipelines() {
    const int64_t times = std::min<int64_t>(job_.accumulation, 2);
    for (pass_ = 0; pass_ < times; ++pass_) run_pipeline();
  }

  void run_pipeline() {
    outputs_.clear();  // clear_runtime_states: a stage has its outputs until its next step
    for (Chunk& c : chunks_) {
      make_buffers(c);
      c.fsdp->keep_whole(true);
    }
    std::map<std::pair<int64_t, int64_t>, InFlight> cache;
    Tensor last_output, sent;  // what the schedule's names hold: the last output, and the gradient that is sent
    Tensors losses;
    for (const PipelineCall& call : schedule()) {
      Chunk& chunk = chunks_[static_cast<size_t>(call.chunk)];
      count(call);
      InFlight& f = cache[{call.micro_batch, call.chunk}];
      if (call.forward) {
        run_forward(chunk, f, call.micro_batch, last_output);
        if (chunk.is_last) keep_results(f, losses);
      } else {
        sent = run_backward_of(chunk, f, call.micro_batch);
        cache.erase({call.micro_batch, call.chunk});
      }
    }
    if (counting_) tape_.work = &work_;
    work_.begin_micro_step(0);
    for (Chunk& c : chunks_) c.fsdp->reduce_kept();
    label_gradients();
    if (outputs_.empty()) return;
    const Tensor merged = cat(outputs_, 0);
  }

  // Losses of all micro-batches stay until the step ends, and so did their outputs; what they were computed from does not. What those that
  // are not executed would have left is there from the first on: at the end, where the peak is, it is.
  void keep_results(const InFlight& f, Tensors& losses) {
    const int64_t others = losses.empty() ? micro_batches_ - executed() : 0;
    const auto keep = [others](Tensors& all, const Tensor& result) {
      for (int64_t i = 0; i < others; ++i) all.push_back(empty_like(result));
      all.push_back(detach(result));
    };
    if (settings_.keeps_outputs()) keep(outputs_, f.output);
    keep(losses, f.loss);
  }

  // The first two micro-batches stand for all: what is gathered for the first, and reduced after the last, counts with the first.
  void count(const PipelineCall& call) {
    if (!counting_) return;
    const int64_t micro_step = pass_ * micro_batches_ + call.micro_batch;
    tape_.work = micro_step < 2 ? &work_ : nullptr;
    work_.begin_micro_step(static_cast<uint16_t>(micro_step));
  }

  void run_forward(Chunk& chunk, InFlight& f, int64_t micro_batch, Tensor& last_output) {
    tape_.begin_phase(Phase::forward);
    if (chunk.is_first) {
      f.input = slice(ids_, 0, micro_batch * samples(), (micro_batch + 1) * samples());
    } else {
      f.input = detach(chunk.received[static_cast<size_t>(micro_batch)]);
      make_leaf(f.input);
    }
    last_output = f.output = forward(chunk, f.input, false);
    if (chunk.is_last) f.loss = loss_of(f.output, slice(labels_, 0, micro_batch * samples(), (micro_batch + 1) * samples()));
  }

  // Gives the gradient that goes to the stage before; none on the first.
  Tensor run_backward_of(Chunk& chunk, InFlight& f, int64_t micro_batch) {
    if (chunk.is_last)
      backward(chunk, f.loss, {});
    else
      backward(chunk, f.output, chunk.received_gradients[static_cast<size_t>(micro_batch)]);
    return chunk.is_first ? Tensor() : leaf_gradient(f.input);
  }

  const Job& job_;
  const TorchtitanSettings& settings_;
  const int64_t stage_, micro_batches_;
  int64_t pass_ = 0;  // of a pipeline, in this step
  const bool details_, counts_work_;
  bool counting_ = false;
  Work work_;
  Tape tape_;
  Build build_;
  TorchtitanConfig config_;
  std::optional<TensorParallel> tensor_;
  std::vector<Chunk> chunks_;
  std::vector<Parameter*> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor ids_, labels_, pred_, loss_;
  Tensors outputs_;  // of a pipeline's last stage, by micro-batch
};

}  // namespace

FsdpSettings torchtitan_sharding(const TorchtitanSettings& t) {
  FsdpSettings f;
  f.replicas = t.replicas;
  f.world = t.shards() * t.replicas;
  f.param_dtype = WireType::bf16;
  f.reduce_dtype = WireType::fp32;
  f.checkpoint_inside = true;
  f.reshard = t.reshard == ReshardPolicy::always || (t.reshard == ReshardPolicy::by_default && !t.pipelined());
  f.keep_last = t.reshard == ReshardPolicy::by_default;
  f.reshard_root = false;
  return f;
}

Simulation simulate_torchtitan(const Job& job, bool details, bool work) {
  const TorchtitanSettings& t = *job.program.torchtitan;
  if (t.stage) return TorchtitanTrainer(job, *t.stage, details, work).run();
  return largest_stage(t.pipeline, details || work,
                       [&](int64_t stage, bool whole) { return TorchtitanTrainer(job, stage, whole && details, whole && work).run(); });
}

}  // namespace plimsoll
