#include "step/megatron_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "model/decoder/megatron.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "step/largest_stage.h"
#include "step/pipeline_schedule.h"
#include "step/stage_result.h"
#include "tensor/kernel_memory.h"
#include "util/checked.h"

namespace plimsoll {

namespace {

constexpr int64_t kAligned = 64;         // elements: where a parameter begins in a buffer
constexpr int64_t kBucketAligned = 128;  // and, over the ranks, where a bucket ends

// The parameters of one kind (dense, or of experts) and what belongs to them.
class ParameterBuffer {
 public:
  ParameterBuffer(Tape& tape, std::vector<Parameter*> parameters, int64_t shards, bool distributed)
      : tape_(tape), parameters_(std::move(parameters)), shards_(shards), distributed_(distributed) {
    for (const Parameter* p : parameters_) {
      if (distributed) elements_ = round_up(elements_, kAligned);
      elements_ = checked_add(elements_, p->value.numel());
    }
    if (distributed) elements_ = round_up(elements_, std::lcm(shards, kBucketAligned));
  }

  // The weights: views of one buffer where a rank's part of it is gathered, else tensors of their own.
  void make_weights() {
    tape_.category = Category::parameter;
    tape_.op = "parameter";
    Ref<Storage> buffer;
    if (distributed_) buffer = tape_.allocate(checked_mul(elements_, 2));
    for (Parameter* p : parameters_) {
      const ScopeGuard scope(tape_, tape_.scope_of(p->value));
      p->value.body().storage = distributed_ ? buffer : tape_.allocate(checked_mul(p->value.numel(), 2));
    }
    tape_.category.reset();
  }

  void make_gradients() {
    tape_.op = "grad_data";
    gradients_ = empty(tape_, {elements_}, DType::float32);
    tape_.relabel(gradients_, Category::gradient);
  }

  // fp32 weights of this rank's part, at once; Adam's two states when it first steps.
  void make_master() { states_.push_back(state("main_param")); }
  void step() {
    if (states_.size() > 1) return;
    states_.push_back(state("exp_avg"));
    states_.push_back(state("exp_avg_sq"));
  }

 private:
  Tensor state(const char* name) {
    tape_.op = name;
    const Tensor t = empty(tape_, {distributed_ ? elements_ / shards_ : elements_}, DType::float32);
    tape_.relabel(t, Category::optimizer_state);
    return t;
  }

  Tape& tape_;
  std::vector<Parameter*> parameters_;
  int64_t shards_, elements_ = 0;
  bool distributed_;
  Tensor gradients_;
  Tensors states_;
};

class MegatronTrainer {
 public:
  MegatronTrainer(const Job& job, int64_t stage, bool details, bool counts_work)
      : job_(job),
        settings_(*job.program.megatron),
        stage_(stage),
        details_(details),
        counts_work_(counts_work),
        tape_(dialect(job)),
        build_(tape_),
        config_(job.family, job.config, settings_),
        shared_(tape_) {
    tape_.keep_shapes = details;
  }

  Simulation run() {
    make_model();
    for (int64_t i = 0; i < job_.steps; ++i) {
      counting_ = counts_work_ && i == job_.steps - 1;
      step();
    }
    return stage_result(tape_, parameters_, std::move(work_), details_);
  }

 private:
  static Dialect dialect(const Job& job) {
    Dialect d;
    d.torch = job.platform.torch;
    d.kernels = kernel_memory(job.platform);
    return d;
  }

  MegatronChunk::Place place(int64_t chunk) const {
    const int64_t parts = settings_.pipeline * settings_.virtual_stages, part = chunk * settings_.pipeline + stage_;
    MegatronChunk::Place p;
    const auto layers_of = [&](int64_t i) {
      return settings_.layers.empty() ? config_.layers / parts : settings_.layers[static_cast<size_t>(i)];
    };
    for (int64_t i = 0; i < part; ++i) p.first += layers_of(i);
    p.count = layers_of(part);
    p.embeds = part == 0;
    p.has_head = part == parts - 1;
    return p;
  }

  void make_model() {
    build_.dtype = DType::bfloat16;
    build_.on_meta = true;
    Checkpointing recompute = job_.checkpointing;
    recompute.reentrant = true;  // megatron.core has a checkpoint of its own, of that kind
    build_.checkpointing = CheckpointPlan(recompute);
    std::vector<Parameter*> dense, experts;
    for (int64_t c = 0; c < settings_.virtual_stages; ++c) {
      chunks_.push_back(std::make_unique<MegatronChunk>(build_, config_, settings_, place(c), shared_));
      const std::vector<Parameter*> of_experts = chunks_.back()->expert_parameters();
      for (Parameter* p : chunks_.back()->parameters())
        (std::find(of_experts.begin(), of_experts.end(), p) != of_experts.end() ? experts : dense).push_back(p);
    }
    parameters_ = dense;
    parameters_.insert(parameters_.end(), experts.begin(), experts.end());
    buffers_.emplace_back(tape_, dense, settings_.shards(), settings_.distributed_optimizer);
    if (!experts.empty()) buffers_.emplace_back(tape_, experts, settings_.expert_shards(), settings_.distributed_optimizer);
    for (ParameterBuffer& b : buffers_) b.make_weights();
    for (ParameterBuffer& b : buffers_) b.make_gradients();
    for (ParameterBuffer& b : buffers_) b.make_master();
    if (job_.warm_optimizer)
      for (ParameterBuffer& b : buffers_) b.step();
    // The hook of its DDP: what arrives is added to the buffer and dropped.
    tape_.gradient_arrived = [](Parameter& p) { p.grad.reset(); };
  }

  int64_t tokens() const { return job_.seq / settings_.context; }

  struct InFlight {
    MegatronInput input;
    Tensor output;
  };

  // What the loader gives: on the first and the last stage of the pipeline.
  MegatronInput make_input(const MegatronChunk::Place& p) {
    MegatronInput in;
    tape_.category = Category::input;
    tape_.op = "input";
    if (p.embeds || p.has_head) {
      in.tokens = empty(tape_, {job_.batch, tokens()}, DType::int64);
      in.labels = empty(tape_, {job_.batch, tokens()}, DType::int64);
      in.positions = empty(tape_, {job_.batch, tokens()}, DType::int64);
    }
    // BertModel.bert_extended_attention_mask: Transformer Engine is given padding alone.
    const int64_t queries = config_.kind == MegatronKind::bert && !settings_.local ? 1 : tokens();
    if (settings_.attention_mask) in.mask = empty(tape_, {job_.batch, 1, queries, job_.seq}, DType::bool_);
    if (config_.kind != MegatronKind::gpt) add_inputs(in);
    tape_.category.reset();
    if (!p.embeds) {
      tape_.op = "recv_forward";
      in.hidden = empty(tape_, hidden_sizes(), DType::bfloat16);
      make_leaf(in.hidden);
    }
    return in;
  }

  // Of BERT: segments and the order of sentences. Of T5: what its decoder is given, for which the labels are.
  void add_inputs(MegatronInput& in) {
    const int64_t own = config_.decoder_tokens;
    const auto ids = [this](const Dims& sizes) { return empty(tape_, sizes, DType::int64); };
    if (config_.kind == MegatronKind::bert) {
      in.types = ids({job_.batch, tokens()});
      in.order = ids({job_.batch});
      return;
    }
    in.labels = ids({job_.batch, own});
    in.decoder_tokens = ids({job_.batch, own});
    in.decoder_positions = ids({job_.batch, own});
    for (const int64_t keys : {own, job_.seq}) in.decoder_masks.push_back(empty(tape_, {job_.batch, 1, own, keys}, DType::bool_));
  }

  Dims hidden_sizes() const { return {settings_.sequence ? tokens() / settings_.tensor : tokens(), job_.batch, config_.hidden}; }

  void step() {
    tape_.begin_step();
    const int64_t micro = enough_micro_batches(settings_.pipeline, settings_.virtual_stages, job_.accumulation);
    std::map<std::pair<int64_t, int64_t>, InFlight> flying;
    for (const PipelineCall& call : pipeline_schedule(settings_.pipeline, stage_, settings_.virtual_stages, micro)) {
      const MegatronChunk::Place p = place(call.chunk);
      const std::pair<int64_t, int64_t> key{call.micro_batch, call.chunk};
      count(call);
      if (call.forward) {
        tape_.begin_phase(Phase::forward);
        InFlight& f = flying[key];
        f.input = make_input(p);
        forward(f, call.chunk, p.has_head);
      } else {
        tape_.begin_phase(Phase::backward);
        backward(flying.at(key), p.has_head);
        flying.erase(key);
      }
    }
    if (counting_) tape_.work = &work_;
    tape_.begin_phase(Phase::optimizer);
    for (ParameterBuffer& b : buffers_) b.step();
  }

  // The first two micro-batches stand for all, as in every accumulation.
  void count(const PipelineCall& call) {
    if (!counting_) return;
    tape_.work = call.micro_batch < simulated_micro_steps(job_) ? &work_ : nullptr;
    work_.begin_micro_step(static_cast<uint16_t>(call.micro_batch));
  }

  void forward(InFlight& f, int64_t chunk, bool has_head) {
    f.output = (*chunks_[static_cast<size_t>(chunk)])(f.input);
    if (has_head) {
      f.output = sum(f.output);
      return;
    }
    // It is sent, and only what made it is kept (deallocate_pipeline_outputs).
    Tensor sent = f.output;
    f.output.body().storage = tape_.allocate(0);
  }

  void backward(InFlight& f, bool has_head) {
    tape_.op = has_head ? "ones_like" : "recv_backward";
    const Tensor seed = has_head ? empty_like(f.output) : empty(tape_, f.output.sizes(), f.output.dtype());
    run_backward(f.output, seed);
  }

  const Job& job_;
  const MegatronSettings& settings_;
  const int64_t stage_;
  const bool details_, counts_work_;
  bool counting_ = false;
  Work work_;
  Tape tape_;
  Build build_;
  MegatronConfig config_;
  SharedBuffers shared_;
  std::vector<std::unique_ptr<MegatronChunk>> chunks_;
  std::vector<Parameter*> parameters_;
  std::vector<ParameterBuffer> buffers_;
};

}  // namespace

void check_megatron(const Job& job, Problems& out) {
  const MegatronSettings& m = *job.program.megatron;
  if (job.precision != Precision::bf16)
    out.push_back({fmt::format("[megatron] precision {} is not simulated", to_string(job.precision)), "its bf16: precision bf16"});
  if (job.optimizer.name != "AdamW" && job.optimizer.name != "Adam")
    out.push_back({"[megatron] optimizer " + job.optimizer.name + " is not simulated", "its Adam: optimizer AdamW"});
  if (job.tuning.adapter || job.tuning.quantization)
    out.push_back({"[megatron] adapters are not simulated", "leave lora and quantization out"});
  if (job.parallel.any() || job.program.torchtitan)
    out.push_back({"[megatron] it has its own data and tensor parallelism",
                   "leave ddp, zero1, fsdp, fsdp1, zero, tensor_parallel and torchtitan out"});
  if (const int64_t parts = m.context * (m.sequence ? m.tensor : 1); job.seq % parts != 0)
    out.push_back({fmt::format("[megatron] {} tokens cannot be split over {} ranks", job.seq, parts),
                   fmt::format("take {} or {} tokens", std::max(parts, job.seq / parts * parts), round_up(job.seq, parts))});
  if (m.virtual_stages > 1 && job.accumulation % m.pipeline != 0)
    out.push_back({fmt::format("[megatron] {} micro-batches are no multiple of {} stages", job.accumulation, m.pipeline),
                   fmt::format("interleaved schedules want that: accumulation {}", round_up(job.accumulation, m.pipeline))});
  succeeds([&] { MegatronConfig(job.family, job.config, m); }, out);
}

Simulation simulate_megatron(const Job& job, bool details, bool work) {
  const MegatronSettings& m = *job.program.megatron;
  if (m.stage) return MegatronTrainer(job, *m.stage, details, work).run();
  return largest_stage(m.pipeline, details || work,
                       [&](int64_t stage, bool whole) { return MegatronTrainer(job, stage, whole && details, whole && work).run(); });
}

}  // namespace plimsoll
