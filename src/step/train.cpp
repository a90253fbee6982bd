#include "step/train.h"

#include <algorithm>

#include "job/distribution.h"
#include "nn/adapter.h"
#include "nn/layers.h"
#include "nn/parameter_groups.h"
#include "nn/tensor_parallel.h"
#include "ops/reduce.h"
#include "optim/foreach.h"
#include "optim/optimizer.h"
#include "step/clip.h"
#include "step/ddp.h"
#include "step/deepspeed.h"
#include "step/ema.h"
#include "step/fsdp.h"
#include "step/fsdp1.h"
#include "step/grad_scaler.h"
#include "step/in_backward.h"
#include "step/master_weights.h"
#include "step/model_of_job.h"
#include "step/offloaded_layers.h"
#include "step/offloaded_optimizer.h"
#include "step/parameter_groups.h"
#include "step/swapped_blocks.h"
#include "step/zero1.h"
#include "tensor/inference.h"
#include "util/text.h"

namespace plimsoll {

namespace {

std::optional<DType> autocast_type(const Job& job) {
  if (job.precision == Precision::amp_fp16 || (job.autocast && job.precision == Precision::fp16)) return DType::float16;
  if (job.precision == Precision::amp || job.autocast) return DType::bfloat16;
  return std::nullopt;
}

class Trainer {
 public:
  Trainer(const Job& job, bool details, bool counts_work)
      : job_(job),
        details_(details),
        counts_work_(counts_work),
        tape_(dialect(job)),
        build_(tape_),
        optimizer_(make_optimizer(job.optimizer.name, job.optimizer.args)) {
    tape_.keep_shapes = details;
    if (job.offload_optimizer) {
      auto offloaded = std::make_unique<OffloadedOptimizer>(job.optimizer, job.offload_optimizer->gradients, tape_);
      offloaded_ = offloaded.get();
      optimizer_ = std::move(offloaded);
    }
    if (job.parallel.zero1) optimizer_ = make_zero1(std::move(optimizer_), *job.parallel.zero1);
  }

  Simulation run() {
    const bool partitioned = job_.parallel.deepspeed && job_.parallel.deepspeed->stage == 3;
    build_.on_meta = job_.parallel.fsdp || job_.parallel.fsdp1 || partitioned;
    if (job_.parallel.tensor) build_.tensor_parallel = &tensor_parallel_.emplace(*job_.parallel.tensor);
    model_ = build_model(build_, job_);
    parameters_ = model_->parameters();
    if (build_.on_meta && !partitioned) shard_model();
    find_trained();
    if (job_.swap_blocks > 0) swapped_ = swap_blocks(tape_, parameters_, job_.swap_blocks);
    offloaded_layers_ = offload_layers(job_, *model_, tape_);
    if (const std::optional<DdpSettings> ddp = job_.parallel.reducer()) ddp_.emplace(*ddp, tape_, parameters_, build_.buffers);
    updated_ = trained_;
    if (sharded_ && sharded_->on_host()) offload_update();
    if (job_.master_weights) updated_ = master_.emplace(job_.gradient_dtype == GradientType::fp32, tape_, trained_).parameters();
    if (job_.parallel.deepspeed) {
      deepspeed_ = make_deepspeed(job_, *model_, trained_);
      build_.hooks = deepspeed_->hooks();
    } else {
      attach_optimizer();
    }
    if (job_.precision == Precision::amp_fp16 && job_.loss_scaling) scaler_.emplace(scaled_gradients(), job_.parallel.tensor ? 2 : 1);
    if (job_.ema)
      ema_.emplace(job_.averaging, tape_, job_.averaging.update == EmaUpdate::ai_toolkit ? trained_ : parameters_, build_.buffers);
    batch_ = make_batch(tape_, job_, *model_, job_.batch, job_.seq);
    if (job_.warm_optimizer) warm_optimizer();
    for (int64_t i = 0; i < job_.steps; ++i) {
      if (counts_work_ && i == job_.steps - 1) tape_.work = &work_;
      step();
    }
    tape_.work = nullptr;
    if (job_.longest > job_.seq) {
      batch_ = make_batch(tape_, job_, *model_, job_.batch, job_.longest);
      step();
    }
    if (job_.eval_batch > 0) evaluate();
    if (job_.sampling.tokens > 0) sample();
    Simulation result;
    result.activations_on_host = tape_.on_host.peak;
    const auto here = [this](const Parameter& p) { return deepspeed_ ? deepspeed_->elements(p) : p.value.numel(); };
    for (const Parameter* p : parameters_) result.parameters += p->elements ? p->elements : here(*p);
    for (const Parameter* p : trained_) result.trainable += here(*p);
    result.sample = model_->sample(job_.seq);
    if (details_)
      for (const Parameter* p : parameters_) result.parameter_list.push_back(record_of(*p, tape_));
    result.host = host_side();
    result.work = std::move(work_);
    result.trace = std::move(tape_.trace);  // what is alive now stays alive in it
    return result;
  }

 private:
  static Dialect dialect(const Job& job) {
    Dialect d;
    d.attention = job.attention;
    d.item = job.recorded_item;
    d.recorder = job.recorded_item.has_value();
    d.late_gradient_labels = d.recorder && is_distributed(job);
    if (d.recorder) return d;
    d.torch = job.platform.torch;
    if (job.platform.target == "cpu")
      d.rules = kCpuRules;
    else
      d.kernels = kernel_memory(job.platform);
    return d;
  }

  void shard_model() {
    const ParallelSettings& p = job_.parallel;
    const std::vector<std::string> blocks = p.fsdp && p.fsdp->longest_list ? std::vector<std::string>() : blocks_of(job_);
    if (p.fsdp)
      sharded_ = std::make_unique<FullyShard>(*p.fsdp, *model_, modules_to_shard(*p.fsdp, *model_, blocks));
    else
      sharded_ = std::make_unique<FullyShardedDataParallel>(*p.fsdp1, *model_, modules_to_flatten(*p.fsdp1, *model_, blocks));
    build_.hooks = sharded_.get();
    parameters_ = sharded_->parameters();
  }

  GradScaler::Gradients scaled_gradients() const {
    const ParallelSettings& p = job_.parallel;
    if (p.fsdp1) return p.fsdp1->offload ? GradScaler::Gradients::on_host : GradScaler::Gradients::flat;
    return p.fsdp ? GradScaler::Gradients::dtensors : GradScaler::Gradients::plain;
  }

  void find_trained() {
    const auto* own = dynamic_cast<const GroupsParameters*>(model_.get());
    if (own && !sharded_) groups_ = own->parameter_groups();
    for (Parameter* p : parameters_)
      if (p->value.requires_grad() && groups_.lists.empty()) trained_.push_back(p);
    for (const std::vector<Parameter*>& group : groups_.lists) trained_.insert(trained_.end(), group.begin(), group.end());
  }

  // The optimizer runs on the host, on pinned shards and gradients.
  void offload_update() {
    for (const Parameter* p : parameters_) on_host_ += Bytes{checked_mul(p->value.numel(), size_of(p->value.dtype()))};
    for (const Parameter* p : trained_) on_host_ += Bytes{checked_mul(p->value.numel(), size_of(p->value.dtype()))};
    on_host_ += states_of(job_.optimizer, trained_);
    updated_.clear();
  }

  void step() {
    tape_.begin_step();
    for (int64_t i = 0; i < micro_steps(); ++i) {
      if (tape_.work) tape_.work->begin_micro_step(static_cast<uint16_t>(i));
      micro_step(i == 0, i == micro_steps() - 1);
    }
    tape_.begin_phase(Phase::optimizer);
    if (deepspeed_) deepspeed_->step();
    if (master_) master_->take_gradients();
    if (job_.clip && !deepspeed_) {
      if (scaler_) scaler_->unscale(updated_);
      if (groups_.clipped_apart && !master_)
        for (const std::vector<Parameter*>& group : groups_.lists) clip_grad_norm(group);
      else if (!sharded_ || !sharded_->clip())
        clip_grad_norm(updated_, sharded_ ? sharded_->mesh() : ClipMesh{});
    }
    update();
    if (tape_.work) count_update();
    if (ema_) ema_->update();
    if (ema_ && tape_.work) count_average();
  }

  // What the update's kernels do in place: each parameter, gradient and state is read, and all but the gradient written. Passes over them
  // are the optimizer's form, which plan/step_time.h knows.
  void count_update() {
    Work& work = *tape_.work;
    int64_t values = 0, gradients = 0, states = 0;
    for (const Parameter* p : updated_) values += checked_mul(p->value.numel(), size_of(p->value.dtype()));
    gradients = values;
    if (job_.parallel.zero1) values /= job_.parallel.zero1->world;
    for (const Tensor& s : in_backward_ ? in_backward_->states() : deepspeed_ ? deepspeed_->states() : optimizer_->states())
      states += s.storage().bytes;
    const auto tensors = static_cast<uint32_t>(updated_.size());
    if (job_.clip) work.add(tape_, {.op = "clip_grad_norm_", .bytes = 3 * gradients});
    if (offloaded_)  // gradients go, weights come back
      work.add(tape_, {.op = "offloaded_step", .bytes = values + gradients, .unit = Unit::transfer});
    else if (job_.optimizer.name != "none")
      work.add(tape_, {.op = "step", .bytes = values + 2 * (values + states), .launches = tensors});
    if (const Bytes paged = host_side().managed; paged.count > 0) work.add(tape_, {.op = "step", .bytes = 2 * paged.count});
  }

  // In place where it lies; an average on the host is fetched and sent back, or the weights are sent to it.
  void count_average() {
    if (const int64_t host = ema_->on_host().count; host > 0)
      tape_.work->add(tape_, {.op = "ema", .bytes = 2 * host, .unit = Unit::transfer});
    else
      for (const Parameter* p : parameters_) tape_.work->add(tape_, {.op = "ema", .bytes = 3 * p->value.storage().bytes});
  }

  HostSide host_side() const {
    HostSide h;
    if (in_backward_ || optimizer_) h.managed = in_backward_ ? in_backward_->managed() : optimizer_->managed();
    h.weights = swapped_ + offloaded_layers_.on_host;
    h.optimizer = offloaded_       ? offloaded_->on_host()
                  : deepspeed_     ? deepspeed_->on_host()
                  : in_backward_   ? in_backward_->on_host()
                  : on_host_.count ? on_host_
                                   : optimizer_->on_host();
    if (ema_) h.ema = ema_->on_host();
    if (ema_) h.ema_transfer = ema_->host_transfer();
    return h;
  }

  // transformers' default, in training too, and part of the output. Checkpointing turns it off; so does the recorder unless told.
  bool uses_cache() const {
    return !job_.checkpointing.on && job_.config.flag({"use_cache"}, !tape_.dialect.recorder && model_->uses_cache());
  }

  Output run_model(bool sync = true) {
    build_.batch = &batch_;
    if (sharded_) return sharded_->forward(batch_, sync);
    if (deepspeed_) deepspeed_->before_forward();
    Output out = model_->forward(batch_);
    if (deepspeed_) deepspeed_->after_forward(out);
    return out;
  }

  int64_t micro_steps() const { return simulated_micro_steps(job_); }

  void micro_step(bool first, bool last) {
    tape_.begin_phase(Phase::forward);
    if (first && job_.zero_grad == ZeroGrad::before_forward) zero_grad();
    {
      AutocastGuard autocast(tape_, autocast_type(job_));
      Tensors cache;
      if (ddp_) ddp_->before_forward(last || !job_.parallel.reducer()->no_sync);
      if (uses_cache()) build_.cache = &cache;
      tape_.saves_on = job_.offload_activations;
      Output out = run_model(last || !job_.parallel.accumulates_whole_gradients());  // the old outputs are still alive here
      tape_.saves_on = Offload::none;
      build_.cache = nullptr;
      if (!tape_.dialect.recorder) build_.checkpointing.require_all_found(tape_.trace);  // there a layer may be dropped
      if (ddp_) ddp_->after_forward(out);
      kept_ = std::move(out.kept);
      kept_.insert(kept_.end(), cache.begin(), cache.end());
      loss_ = job_.loss == Loss::logits_sum ? sum(kept_.front()) : std::move(out.loss);
    }
    if (job_.drop_output) kept_.clear();
    tape_.begin_phase(Phase::backward);
    if (first && job_.zero_grad == ZeroGrad::before_backward) zero_grad();
    {
      const Tensor loss = scaler_ ? scaler_->scale(loss_) : deepspeed_ ? deepspeed_->before_backward(loss_, last) : loss_;
      tape_.op = "ones_like";
      const Tensor seed = empty_like(loss);
      run_backward(loss, seed);
      if (in_backward_) in_backward_->finish();
      if (sharded_) sharded_->after_backward();
      if (deepspeed_) deepspeed_->after_backward();
    }
    if (ddp_) ddp_->after_backward();
    label_gradients();
    if (job_.drop_after) {
      kept_.clear();
      loss_.reset();
    }
  }

  // Buckets that gradients are views of are gradients, too.
  void label_gradients() {
    for (const Parameter* p : parameters_)
      if (p->grad) tape_.relabel(p->grad, Category::gradient);
  }

  // What the optimizer's constructor makes. The recorder calls it parameters until the first step has run.
  void attach_optimizer() {
    if (steps_in_backward(job_)) {
      in_backward_.emplace(job_.optimizer, tape_, trained_, linear_layers());
      return;
    }
    const auto sharded = std::count_if(updated_.begin(), updated_.end(), [](const Parameter* p) { return p->is_dtensor; });
    if (sharded > 0 && sharded < static_cast<std::ptrdiff_t>(updated_.size()))
      optimizer_ = by_groups(std::move(optimizer_), dtensors_first(updated_));
    if (groups_.lists.size() > 1 && !master_) optimizer_ = by_groups(std::move(optimizer_), groups_.lists);
    optimizer_->know_linear_layers(linear_layers());
    optimizer_->attach(updated_);
    if (!tape_.dialect.recorder) label_states();
  }

  // What is updated for each weight that named_parameters() knows by a linear layer's name: not one that is tied to an embedding.
  std::vector<LinearWeight> linear_layers() const {
    std::map<const Parameter*, const Parameter*> updated;
    for (size_t i = 0; i < trained_.size(); ++i) updated[trained_[i]] = updated_[i];
    std::vector<LinearWeight> layers;
    add_linear_layers(*model_, updated, layers);
    return layers;
  }

  static void add_linear_layers(const Module& m, std::map<const Parameter*, const Parameter*>& left, std::vector<LinearWeight>& out) {
    for (const Parameter* p : m.own_parameters()) {
      const auto found = left.find(p);
      if (found == left.end()) continue;
      if (dynamic_cast<const Linear*>(&m) && p->name == "weight") out.push_back({m.path(), found->second});
      left.erase(found);
    }
    for (const Module* child : m.children()) add_linear_layers(*child, left, out);
  }

  void label_states() {
    for (const Tensor& s : deepspeed_ ? deepspeed_->states() : optimizer_->states()) tape_.relabel(s, Category::optimizer_state);
  }

  void update() {
    if (scaler_) {
      scaler_->step(*optimizer_, updated_);
      scaler_->update();
    } else if (!in_backward_ && !deepspeed_) {
      optimizer_->step(updated_);
    }
    label_states();
    if (job_.zero_grad == ZeroGrad::after_step) zero_grad();
  }

  // model.eval() and torch.no_grad(), one batch; the loss is kept, as when nothing but the loss is asked for.
  void evaluate() {
    tape_.begin_step();
    batch_ = make_batch(tape_, job_, *model_, job_.eval_batch, std::max(job_.seq, job_.longest));
    tape_.begin_phase(Phase::evaluation);
    const Inference mode(tape_);
    AutocastGuard autocast(tape_, autocast_type(job_));
    const Output out = run_model();
  }

  // generate(): the prompts in one forward, then the cache grows to its last length. One token's own activations are left out.
  void sample() {
    if (job_.inputs != InputKind::lm) throw Error("[job] sample_tokens: " + job_.family + " generates no text", "leave sample_tokens out");
    tape_.begin_step();
    Job prompts = job_;
    prompts.loss = Loss::logits_sum;  // no labels
    prompts.collation = {};
    batch_ = make_batch(tape_, prompts, *model_, job_.sampling.batch, job_.sampling.prompt);
    tape_.begin_phase(Phase::sampling);
    const Inference mode(tape_);
    Tensors cache;
    {
      build_.cache = &cache;
      AutocastGuard autocast(tape_, autocast_type(job_));
      const Output out = run_model();
      build_.cache = nullptr;
    }
    tape_.op = "cat";
    for (Tensor& t : cache) {
      Dims sizes = t.sizes();
      sizes[2] += job_.sampling.tokens;
      t = empty(tape_, sizes, t.dtype());
    }
  }

  // Before 2.0 set_to_none was off: gradients were filled with zeros and lived on.
  void zero_grad() {
    if (tape_.dialect.torch < Version{2, 0}) return;
    for (Parameter* p : trained_) p->grad.reset();
    if (master_) master_->drop_gradients();
  }

  void warm_optimizer() {
    if (deepspeed_)
      throw Error("[zero] states before the first step are not simulated with zero", "leave zero out, or look at the second step");
    tape_.begin_phase(Phase::optimizer);
    for (Parameter* p : trained_) {
      p->grad = zeros_like(p->value);
      tape_.relabel(p->grad, Category::gradient);
    }
    optimizer_->step(trained_);
    if (!(tape_.dialect.recorder && job_.parallel.zero1)) label_states();  // the recorder does not look into the wrapper here
    zero_grad();
  }

  const Job& job_;
  const bool details_, counts_work_;
  Work work_;
  Tape tape_;
  Build build_;
  std::unique_ptr<Model> model_;
  std::vector<Parameter*> parameters_;
  std::vector<Parameter*> trained_;  // those that require a gradient and are in a group of the optimizer
  ParameterGroups groups_;
  std::vector<Parameter*> updated_;  // what the optimizer gets: those, or their master copies
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<StepInBackward> in_backward_;
  std::optional<MasterWeights> master_;
  Bytes swapped_;
  OffloadedLayers offloaded_layers_;
  Bytes on_host_;                                  // of a wrapper that updates there
  const OffloadedOptimizer* offloaded_ = nullptr;  // that one, when it is on the host
  std::optional<DataParallel> ddp_;
  std::unique_ptr<ShardedModel> sharded_;
  std::unique_ptr<DeepSpeedEngine> deepspeed_;
  std::optional<TensorParallel> tensor_parallel_;
  std::optional<GradScaler> scaler_;
  std::optional<MovingAverage> ema_;
  Batch batch_;
  Tensors kept_;
  Tensor loss_;
};

}  // namespace

Simulation simulate_training(const Job& job, bool details, bool work) { return Trainer(job, details, work).run(); }

int64_t simulated_micro_steps(const Job& job) { return job.recorded_item ? job.accumulation : std::min<int64_t>(job.accumulation, 2); }

std::vector<std::string> step_names(const Job& job) {
  std::vector<std::string> names;
  for (int64_t i = 1; i <= job.steps; ++i) names.push_back("step " + std::to_string(i));
  if (job.program.has_stages()) return names;
  if (job.longest > job.seq) names.push_back("longest sample");
  if (job.eval_batch > 0) names.push_back("evaluation");
  if (job.sampling.tokens > 0) names.push_back("sampling");
  return names;
}

}  // namespace plimsoll
