#include "step/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "optim/foreach.h"
#include "step/deepspeed_norms.h"
#include "step/offloaded_optimizer.h"
#include "step/sharded_model.h"

namespace plimsoll {

namespace {

constexpr int64_t kStartAlignment = 2;  // nccl_start_alignment_factor, in elements a rank

// _has_inf_or_nan
void count_infinite(const Tensor& grad, Tape& tape) {
  const Dims sizes = grad.sizes();
  const Tensor wide = grad.dtype() == DType::float32 ? grad : temporary("_to_copy", sizes, DType::float32, tape);
  const Tensor nan = temporary("isnan", sizes, DType::bool_, tape), inf = temporary("isinf", sizes, DType::bool_, tape);
  const Tensor either = temporary("logical_or", sizes, DType::bool_, tape);
  const Tensor numbers = temporary("_to_copy", sizes, DType::float32, tape);
  device_scalar("max", DType::float32, tape);
}

// get_grad_norm_direct: each gradient in fp64.
Tensor group_norm(const Tensors& gradients, Tape& tape) {
  Tensors norms;
  for (const Tensor& g : gradients) {
    const Tensor wide = temporary("_to_copy", g.sizes(), DType::float64, tape);
    norms.push_back(device_scalar("linalg_vector_norm", DType::float64, tape));
  }
  Tensor total = temporary("stack", {static_cast<int64_t>(norms.size())}, DType::float64, tape);
  total = temporary("pow", total);
  total = device_scalar("sum", DType::float64, tape);
  total = device_scalar("_to_copy", DType::float32, tape);
  total = device_scalar("pow", DType::float32, tape);
  mask_infinite(total);
  return total;
}

// scaled_global_norm, of one group of parameters
Tensor scaled_global_norm(const Tensors& gradients, Tape& tape) {
  const Tensor norm = group_norm(gradients, tape);
  const Tensor stacked = temporary("stack", {1}, DType::float32, tape);
  return device_scalar("linalg_vector_norm", DType::float32, tape);
}

// has_overflow: bf16 is looked at, too (check_grad_overflow of its configuration).
void check_overflow(const Tensors& gradients, Tape& tape) {
  Tensor found;
  {
    const Tensor count = temporary("zeros", {1}, DType::float32, tape);
    for (const Tensor& g : gradients) count_infinite(g, tape);
    found = temporary("_to_copy", {1}, DType::bool_, tape);
  }
  temporary("_to_copy", {1}, DType::uint8, tape);
}

class Zero12 final : public DeepSpeedEngine {
 public:
  // `trained`: at least one, all of one type.
  Zero12(const Job& job, Tape& tape, const std::vector<Parameter*>& trained)
      : settings_(*job.parallel.deepspeed), job_(job), tape_(tape), optimizer_(make_optimizer(job.optimizer.name, job.optimizer.args)) {
    parameters_ = trained;
    dtype_ = trained.front()->value.dtype();
    gradient_dtype_ = type_of(settings_.gradient_dtype).value_or(dtype_);
    flatten_weights(settings_.round_robin_gradients ? round_robin(trained) : trained);
    make_master();
    tape_.gradient_arrived = [this](Parameter& p) { process_gradient(p); };
  }
  ~Zero12() override { tape_.gradient_arrived = nullptr; }

  void after_forward(const Output& out) override;
  Tensor before_backward(const Tensor& loss, bool boundary) override;
  void after_backward() override;
  void step() override;
  Tensors states() const override { return optimizer_->states(); }
  Bytes on_host() const override { return on_host_; }

 private:
  // What of a parameter this rank updates.
  struct Share {
    int64_t from = 0, elements = 0;
  };
  struct Slot {
    int64_t offset = 0;  // in the flat weights
    std::optional<Share> share;
    Tensor grad_accum;
  };

  std::vector<Parameter*> round_robin(const std::vector<Parameter*>& in) const;
  void flatten_weights(const std::vector<Parameter*>& order);
  void make_master();
  void setup_buckets();
  void process_gradient(Parameter& p);
  Tensor gradient_for_reduction(const Parameter& p) const;
  void reduce_and_remove(Parameter& p);
  void reduce_bucket();
  void all_reduce_slices();
  std::vector<int64_t> slices() const;
  void copy_to_partition(Parameter& p);
  void send_to_host(Parameter& p);
  Slot& slot(const Parameter& p) { return slots_.at(&p); }
  void collect_gradients();
  void update_on_device();

  DeepSpeedSettings settings_;
  const Job& job_;
  Tape& tape_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<Parameter*> parameters_;  // in the model's order
  std::vector<Parameter*> in_partition_;
  std::unordered_map<const Parameter*, Slot> slots_;
  DType dtype_ = DType::float32, gradient_dtype_ = DType::float32;
  int64_t partition_ = 0;  // elements
  Tensor flat_;            // bit16_groups_flat
  Parameter master_;       // single_partition_of_fp32_groups
  Tensor offload_buffer_;  // temp_grad_buffer_for_gpu_offload
  Tensors norms_;          // of offloaded gradients
  // The bucket.
  Tensors buffers_;
  size_t index_ = 0;
  std::vector<Parameter*> bucket_;
  Tensors bucket_grads_;
  int64_t elements_ = 0;
  bool ready_ = false, boundary_ = true;
  Tensor global_norm_, reported_norm_;  // of this step, and what the engine reports until it has ended
  Tensor returned_loss_;                // what the engine's backward returns: over the micro-steps
  Tensor grads_in_partition_;
  Tensors all_grads_;  // of this rank's parameters, over micro-steps
  Tensors averaged_;
  Bytes on_host_;
};

// _round_robin_reorder
std::vector<Parameter*> Zero12::round_robin(const std::vector<Parameter*>& in) const {
  const auto world = static_cast<size_t>(settings_.world);
  std::vector<Parameter*> out;
  for (size_t first = 0; first < std::min(world, in.size()); ++first)
    for (size_t i = first; i < in.size(); i += world) out.push_back(in[i]);
  return out;
}

void Zero12::flatten_weights(const std::vector<Parameter*>& order) {
  int64_t n = 0;
  for (const Parameter* p : order) n = checked_add(n, p->value.numel());
  const int64_t alignment = kStartAlignment * settings_.world, aligned = ceil_div(n, alignment) * alignment;
  partition_ = aligned / settings_.world;
  {
    const Labelled label(tape_, Category::parameter, 0);
    flat_ = temporary("cat", {aligned}, dtype_, tape_);
  }
  const int64_t begin = partition_ * settings_.rank, end = begin + partition_;
  int64_t offset = 0;
  for (Parameter* p : order) {
    const int64_t size = p->value.numel();
    look_at(p->value, flat_.body().storage, p->value.sizes(), dtype_);
    Slot& s = slots_[p];
    s.offset = offset;
    const int64_t from = std::max(offset, begin), to = std::min(offset + size, end);
    if (from < to) {
      s.share = Share{from - offset, to - from};
      in_partition_.push_back(p);
    }
    offset += size;
  }
}

void Zero12::make_master() {
  master_.name = "single_partition_of_fp32_groups";
  Tape host;
  Tape& tape = settings_.offload_optimizer ? host : tape_;
  if (settings_.offload_optimizer) {
    Parameter copy;
    make_parameter(host, copy, {partition_}, DType::float32);
    // fp32 weights and gradients, the weights in their own type, and a buffer of the largest gradient
    int64_t largest = 0;
    for (const Parameter* p : parameters_) largest = std::max(largest, p->value.numel());
    on_host_ = Bytes{checked_add(checked_mul(partition_, 8 + size_of(dtype_)), checked_mul(largest, size_of(dtype_)))};
    on_host_ += states_of(job_.optimizer, {&copy});
    const Labelled label(tape_, Category::reduce_buffer, 0);
    offload_buffer_ = temporary("zeros", {largest}, dtype_, tape_);
    return;
  }
  const Labelled label(tape, Category::parameter, 0);
  const Tensor clone = dtype_ != DType::float32 ? temporary("clone", {partition_}, dtype_, tape_) : Tensor();
  make_parameter(tape, master_, {partition_}, DType::float32);
  optimizer_->attach({&master_});
}

// register_output_backward_hooks: the gradient of what the model returned beside the loss is divided by the micro-steps, too.
void Zero12::after_forward(const Output& out) {
  tape_.gradient_hooks.clear();
  if (!tape_.grad_enabled) return;
  for (const Tensor& t : out.kept)
    if (t && t.body().grad_fn) tape_.gradient_hooks[t.body().grad_fn.get()] = [](const Tensor& grad) { return temporary("div", grad); };
}

Tensor Zero12::before_backward(const Tensor& loss, bool boundary) {
  boundary_ = boundary;
  returned_loss_ = temporary("div", loss);
  return scaled_loss(loss, {});
}

// ---- gradients --------------------------------------------------------------------------------------------------------------
void Zero12::setup_buckets() {
  if (std::exchange(ready_, true) || !settings_.contiguous_gradients) return;
  const Labelled label(tape_, Category::reduce_buffer, 0);
  buffers_.clear();
  index_ = 0;
  for (int i = 0; i < (settings_.overlap_comm ? 2 : 1); ++i)
    buffers_.push_back(temporary("empty", {settings_.reduce_bucket}, dtype_, tape_));
}

void Zero12::process_gradient(Parameter& p) {
  if (!slots_.contains(&p) || !p.grad) return;
  const Labelled label(tape_, Category::reduce_buffer, 0);
  setup_buckets();
  if (settings_.stage == 1 && gradient_dtype_ != dtype_) {  // use_grad_accum_attribute
    const Tensor sum = temporary("_to_copy", p.grad.sizes(), gradient_dtype_, tape_);
    if (!slot(p).grad_accum) slot(p).grad_accum = sum;
    p.grad.reset();
  }
  if (settings_.stage == 2 || (settings_.overlap_comm && boundary_)) reduce_and_remove(p);
}

Tensor Zero12::gradient_for_reduction(const Parameter& p) const {
  const Tensor& sum = slots_.at(&p).grad_accum;
  return sum ? temporary("_to_copy", sum.sizes(), dtype_, tape_) : p.grad;
}

void Zero12::reduce_and_remove(Parameter& p) {
  const int64_t n = p.value.numel();
  Tensor grad = gradient_for_reduction(p);
  if (!grad) return;
  if (elements_ + n > settings_.reduce_bucket) {
    reduce_bucket();
    if (settings_.contiguous_gradients && settings_.overlap_comm) index_ = 1 - index_;
  }
  if (settings_.contiguous_gradients && n <= settings_.reduce_bucket)
    look_at(grad, buffers_[index_].body().storage, p.value.sizes(), dtype_);
  elements_ += n;
  bucket_.push_back(&p);
  bucket_grads_.push_back(grad);
}

// Ranges of the bucket that go to one rank each (rank_and_offsets).
std::vector<int64_t> Zero12::slices() const {
  std::vector<int64_t> out;
  int64_t previous = -1;
  for (const Parameter* p : bucket_) {
    const Slot& s = slots_.at(p);
    for (int64_t at = s.offset, end = s.offset + p->value.numel(); at < end;) {
      const int64_t rank = at / partition_, n = std::min(end, (rank + 1) * partition_) - at;
      if (rank == previous)
        out.back() += n;
      else
        out.push_back(n);
      previous = rank;
      at += n;
    }
  }
  return out;
}

// allreduce_and_scatter: slices are joined until they exceed a bucket; one alone is reduced in its place.
void Zero12::all_reduce_slices() {
  int64_t n = 0, count = 0;
  const auto flush = [&] {
    if (count > 1) temporary("cat", {n}, dtype_, tape_);
    n = count = 0;
  };
  for (int64_t slice : slices()) {
    n += slice;
    ++count;
    if (n > settings_.reduce_bucket) flush();
  }
  if (count > 0) flush();
}

void Zero12::reduce_bucket() {
  const Labelled label(tape_, Category::reduce_buffer, 0);
  if (!settings_.contiguous_gradients) {
    if (bucket_.size() > 1) temporary("cat", {elements_}, dtype_, tape_);
  } else if (settings_.reduce_scatter && !bucket_.empty()) {
    all_reduce_slices();
  }
  for (Parameter* p : bucket_) {
    if (slot(*p).share && settings_.contiguous_gradients)
      copy_to_partition(*p);
    else if (settings_.stage == 2 && !slot(*p).share)
      p->grad.reset();
  }
  bucket_.clear();
  bucket_grads_.clear();
  elements_ = 0;
}

// copy_grads_in_partition: the bucket will be written again.
void Zero12::copy_to_partition(Parameter& p) {
  if (settings_.offload_optimizer) return send_to_host(p);
  if (!grads_in_partition_) {
    int64_t total = 0;
    for (const Parameter* mine : in_partition_) total += mine->value.numel();
    grads_in_partition_ = temporary("empty", {total}, dtype_, tape_);
  }
  Tensor grad = gradient_for_reduction(p);
  look_at(grad, grads_in_partition_.body().storage, p.value.sizes(), dtype_);
}

// The norm in fp64 and the copy in fp32 are made on the device.
void Zero12::send_to_host(Parameter& p) {
  if (!boundary_) return;
  const int64_t n = slot(p).share->elements;
  {
    const Tensor wide = temporary("_to_copy", {n}, DType::float64, tape_);
    norms_.push_back(device_scalar("linalg_vector_norm", DType::float64, tape_));
  }
  count_infinite(p.grad, tape_);
  if (dtype_ != DType::float32) temporary("_to_copy", {n}, DType::float32, tape_);
  p.grad.reset();
}

// reduce_gradients of stage 1, and independent_gradient_partition_epilogue
void Zero12::after_backward() {
  returned_loss_.reset();
  tape_.gradient_hooks.clear();
  if (settings_.stage == 1 && !boundary_) return;
  const Labelled label(tape_, Category::reduce_buffer, 0);
  if (settings_.stage == 1 && !settings_.overlap_comm)
    for (Parameter* p : parameters_) reduce_and_remove(*p);
  reduce_bucket();
  if (!settings_.offload_optimizer) collect_gradients();
  buffers_.clear();
  grads_in_partition_.reset();
  ready_ = false;
  for (Parameter* p : parameters_) p->grad.reset();
}

void Zero12::collect_gradients() {
  Tensors now;
  for (Parameter* p : in_partition_) {
    const Tensor& grad = slot(*p).grad_accum ? slot(*p).grad_accum : p->grad;
    now.push_back(grad ? grad : temporary("zeros_like", p->value.sizes(), gradient_dtype_, tape_));
  }
  if (all_grads_.empty()) all_grads_ = now;  // else added in place
  if (!boundary_) return;
  averaged_.clear();
  int64_t mine = 0;
  for (size_t i = 0; i < in_partition_.size(); ++i) {
    const int64_t n = slot(*in_partition_[i]).share->elements;
    mine += n;
    averaged_.push_back(alias(all_grads_[i], {n}, {1}));
  }
  if (mine < partition_) averaged_.push_back(temporary("zeros", {partition_ - mine}, gradient_dtype_, tape_));
  all_grads_.clear();
}

// ---- the update -------------------------------------------------------------------------------------------------------------
void Zero12::step() {
  if (settings_.offload_optimizer) {
    temporary("empty", {1}, DType::uint8, tape_);  // whether there was an overflow, and the norm; the rest is on the host
    temporary("empty", {1}, DType::float32, tape_);
    norms_.clear();
    return;
  }
  if (dtype_ != DType::float32) check_overflow(averaged_, tape_);
  const Tensor norm = scaled_global_norm(averaged_, tape_);
  global_norm_ = temporary("div", norm);
  update_on_device();
  reported_norm_ = global_norm_;
}

void Zero12::update_on_device() {
  {
    Tensor flat = averaged_.size() == 1 ? averaged_.front() : temporary("cat", {partition_}, averaged_.front().dtype(), tape_);
    master_.grad = flat.dtype() == DType::float32 ? flat : temporary("_to_copy", {partition_}, DType::float32, tape_);
  }
  tape_.relabel(master_.grad, Category::gradient);
  for (const Parameter* p : parameters_) slot(*p).grad_accum.reset();
  averaged_.clear();
  unscale_and_clip(DType::float32, tape_);
  optimizer_->step({&master_});
  master_.grad.reset();
}

}  // namespace

std::unique_ptr<DeepSpeedEngine> make_deepspeed(const Job& job, Model& model, const std::vector<Parameter*>& trained) {
  if (trained.empty()) throw Error("[zero] no parameter requires a gradient", "unfreeze a parameter or add an adapter");
  for (const Parameter* p : trained)
    if (p->value.dtype() != trained.front()->value.dtype())
      throw Error("[zero] trained parameters of several types: DeepSpeed would keep a flat tensor for each, which is not simulated",
                  "train in one type, e.g. adapters with dtype: base");
  if (job.parallel.deepspeed->stage == 3) return make_zero_3(job, model, trained);
  return std::make_unique<Zero12>(job, model.tape(), trained);
}

void check_deepspeed(const Job& job, Problems& out) {
  if (!job.parallel.deepspeed) return;
  const auto refuse = [&](const std::string& what, const std::string& why) {
    out.push_back({"[zero] " + what + ": " + why, "leave one of them out"});
  };
  if (job.master_weights) refuse("master_weights", "ZeRO keeps fp32 weights of its own");
  if (job.optimizer_in_backward) refuse("optimizer_in_backward", "gradients are reduced before they are used");
  if (job.offload_optimizer) refuse("offload_optimizer", "that is torchao's; set offload_optimizer within zero");
  if (job.precision == Precision::amp_fp16 && job.loss_scaling)
    refuse("amp-fp16", "DeepSpeed's fp16 has weights in fp16 and scales the loss itself; that is precision fp16");
  if (job.swap_blocks > 0) refuse("swap_blocks", "not simulated with it");
  if (job.parallel.deepspeed->stage < 3) return;
  if (job.precision == Precision::amp || job.precision == Precision::amp_fp16 || job.autocast)
    out.push_back({"[zero] stage 3 under autocast is not simulated", "DeepSpeed's bf16 has weights in bf16: precision bf16; or stage: 2"});
  if (job.tuning.quantization) out.push_back({"[zero] stage 3 with quantization is not simulated", "take stage 2"});
  if (job.ema) refuse("ema", "it would be of parts of the weights");
}

}  // namespace plimsoll
