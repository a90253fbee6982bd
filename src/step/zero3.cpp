// DeepSpeed's ZeRO stage 3 on one rank: the gradients and the update (stage3.py). Parameters are in zero3_parameters.h.
#include <algorithm>

#include "optim/foreach.h"
#include "step/deepspeed.h"
#include "step/deepspeed_norms.h"
#include "step/offloaded_optimizer.h"
#include "step/sharded_model.h"
#include "step/zero3_parameters.h"

namespace plimsoll {

namespace {

class Zero3 final : public DeepSpeedEngine {
 public:
  // `model` was built on meta; `trained`: at least one, all of one type.
  Zero3(const Job& job, Model& model, const std::vector<Parameter*>& trained)
      : settings_(*job.parallel.deepspeed), job_(job), tape_(model.tape()), trained_(trained), parameters_(settings_, model) {
    dtype_ = trained.front()->value.dtype();
    gradient_dtype_ = type_of(settings_.gradient_dtype).value_or(dtype_);
    make_sub_groups();
    make_buffers();
    tape_.gradient_arrived = [this](Parameter& p) { process_gradient(p); };
  }
  ~Zero3() override { tape_.gradient_arrived = nullptr; }

  ModuleHooks* hooks() override { return &parameters_; }
  void before_forward() override { parameters_.begin_forward(); }
  void after_forward(const Output&) override { parameters_.require_all_called(); }
  Tensor before_backward(const Tensor& loss, bool boundary) override;
  void after_backward() override;
  void step() override;
  Tensors states() const override;
  int64_t elements(const Parameter& p) const override { return parameters_.partition(p); }
  Bytes on_host() const override { return on_host_; }

 private:
  // What is updated at once: some parameters' parts, in fp32.
  struct SubGroup {
    std::vector<Parameter*> parameters;
    int64_t elements = 0;
    Parameter master;
    std::unique_ptr<Optimizer> optimizer;
  };

  void make_sub_groups();
  void make_master(SubGroup& group);
  void make_buffers();
  void process_gradient(Parameter& p);
  void reduce_bucket();
  Tensors reduce_in_place();
  Tensors reduce_scatter();
  void keep_on_host(const Parameter& p, Tensor& back);
  Tensor from_reduce_pool(Tensor t) const { return settings_.overlap_comm ? from_pool(Stream::reduce_scatter, std::move(t)) : t; }
  Tensor reduced(const char* op, int64_t elements, DType dtype) const { return from_reduce_pool(temporary(op, {elements}, dtype, tape_)); }
  Tensor group_norm(const SubGroup& group);
  void complete_norm(const SubGroup& group);
  void check_overflow();
  void update(SubGroup& group);

  DeepSpeedSettings settings_;
  const Job& job_;
  Tape& tape_;
  std::vector<Parameter*> trained_;
  PartitionedParameters parameters_;
  DType dtype_ = DType::float32, gradient_dtype_ = DType::float32;
  std::deque<SubGroup> groups_;
  Tensor tracker_;  // inf_or_nan_tracker
  Tensor buffer_;   // of the bucket
  Tensor grads_;    // grad_partitions_flat_buffer
  std::vector<Parameter*> bucket_;
  int64_t elements_ = 0;
  bool boundary_ = true;
  std::unordered_map<const Parameter*, Tensor> norms_;  // of offloaded gradients
  Tensor global_norm_, reported_norm_;                  // of this step, and what the engine reports until it has ended
  int64_t micro_step_ = 0;
  Tensor returned_loss_;
  Bytes on_host_;
};

// _create_fp16_sub_groups
void Zero3::make_sub_groups() {
  int64_t total = 0, part = 0;
  for (const Parameter* p : trained_) total = checked_add(total, parameters_.partition(*p));
  for (Parameter* p : trained_) {
    if (part == 0) groups_.emplace_back();
    groups_.back().parameters.push_back(p);
    groups_.back().elements += parameters_.partition(*p);
    part += parameters_.partition(*p);
    if (settings_.sub_group < total && part >= settings_.sub_group) part = 0;
  }
  for (SubGroup& group : groups_) make_master(group);
}

void Zero3::make_master(SubGroup& group) {
  group.master.name = "fp32_partitioned_groups_flat";
  if (settings_.offload_optimizer) {
    Tape host;
    Parameter copy;
    make_parameter(host, copy, {group.elements}, DType::float32);
    on_host_ += Bytes{checked_mul(group.elements, 8)};  // fp32 weights and gradients
    on_host_ += states_of(job_.optimizer, {&copy});
    return;
  }
  const Labelled label(tape_, Category::parameter, 0);
  group.optimizer = make_optimizer(job_.optimizer.name, job_.optimizer.args);
  const Tensor converted =
      dtype_ != DType::float32 || settings_.offload_param ? temporary("_to_copy", {group.elements}, DType::float32, tape_) : Tensor();
  make_parameter(tape_, group.master, {group.elements}, DType::float32);
  group.optimizer->attach({&group.master});
}

// What is there for the whole run: the bucket, this rank's gradients, and a flag.
void Zero3::make_buffers() {
  int64_t elements = 0;
  for (const SubGroup& group : groups_) elements += group.elements;
  on_host_ += parameters_.bytes_on_host();
  {
    const Labelled label(tape_, Category::reduce_buffer, 0);
    if (settings_.contiguous_gradients) buffer_ = temporary("empty", {settings_.reduce_bucket}, dtype_, tape_);
  }
  if (settings_.offload_optimizer) {
    on_host_ += Bytes{checked_mul(elements, size_of(gradient_dtype_))};
    return;
  }
  {
    const Labelled label(tape_, Category::parameter, 0);
    tracker_ = temporary("zeros", {1}, DType::bool_, tape_);
  }
  const Labelled label(tape_, Category::gradient, 0);
  grads_ = temporary("zeros", {elements}, gradient_dtype_, tape_);
}

Tensors Zero3::states() const {
  Tensors out;
  for (const SubGroup& group : groups_) {
    if (!group.optimizer) continue;
    const Tensors states = group.optimizer->states();
    out.insert(out.end(), states.begin(), states.end());
  }
  return out;
}

// ---- gradients --------------------------------------------------------------------------------------------------------------
Tensor Zero3::before_backward(const Tensor& loss, bool boundary) {
  boundary_ = boundary;
  returned_loss_ = temporary("div", loss);
  return scaled_loss(loss, [this] { parameters_.begin_backward(); });
}

void Zero3::process_gradient(Parameter& p) {
  if (!p.grad) return;
  const int64_t n = p.value.numel();
  if (elements_ > 0 && elements_ + n > settings_.reduce_bucket) reduce_bucket();
  if (settings_.contiguous_gradients && elements_ + n <= settings_.reduce_bucket)
    look_at(p.grad, buffer_.body().storage, p.value.sizes(), dtype_);
  bucket_.push_back(&p);
  elements_ += n;
}

// __reduce_and_partition_ipg_grads
void Zero3::reduce_bucket() {
  if (bucket_.empty()) return;
  const Labelled label(tape_, Category::reduce_buffer, 0);
  const bool in_place = settings_.contiguous_gradients && elements_ <= settings_.reduce_bucket && !settings_.reduce_scatter;
  const Tensors kept = in_place ? reduce_in_place() : reduce_scatter();
  Tensor back;  // of the host's gradients, until the next is there
  for (Parameter* p : bucket_) {
    if (settings_.offload_optimizer && parameters_.filled(*p) > 0) keep_on_host(*p, back);
    p->grad.reset();
  }
  bucket_.clear();
  elements_ = 0;
}

// __avg_scatter_contiguous_grads: the bucket is summed as it is; a part that is not full is copied into one that is.
Tensors Zero3::reduce_in_place() {
  Tensors kept;
  Tensor buffer;
  if (settings_.world != 1) buffer = reduced("mul", elements_, dtype_);
  if (gradient_dtype_ != dtype_) buffer = reduced("_to_copy", elements_, gradient_dtype_);
  if (buffer) kept.push_back(std::move(buffer));
  for (const Parameter* p : bucket_)
    if (parameters_.filled(*p) != parameters_.partition(*p)) kept.push_back(reduced("zeros", parameters_.partition(*p), gradient_dtype_));
  return kept;
}

// __avg_scatter_grads and reduce_scatter_coalesced: all gradients in one tensor, rank by rank and padded.
Tensors Zero3::reduce_scatter() {
  std::sort(bucket_.begin(), bucket_.end(),
            [this](const Parameter* a, const Parameter* b) { return parameters_.id(*a) < parameters_.id(*b); });
  Tensors kept;
  const int64_t world = settings_.world;
  if (bucket_.size() > 1 || bucket_.front()->value.numel() % world != 0) {
    Tensors padding;
    int64_t total = 0;
    for (int64_t rank = 0; rank < world; ++rank)
      for (const Parameter* p : bucket_) {
        const int64_t n = p->value.numel(), part = parameters_.partition(*p), filled = std::clamp<int64_t>(n - rank * part, 0, part);
        total = checked_add(total, part);
        if (filled < part) padding.push_back(reduced("empty", part - filled, dtype_));
      }
    kept.push_back(reduced("cat", total, dtype_));
  }
  if (gradient_dtype_ == dtype_) return kept;
  Tensors wide;
  for (const Parameter* p : bucket_) wide.push_back(reduced("_to_copy", parameters_.filled(*p), gradient_dtype_));
  return wide;
}

// partition_grads: the part's gradient goes to the host and comes back for its norm and its copy in fp32.
void Zero3::keep_on_host(const Parameter& p, Tensor& back) {
  const int64_t n = settings_.reduce_scatter ? parameters_.filled(p) : parameters_.partition(p);
  if (micro_step_ == 0) back.reset();
  back = reduced("_to_copy", n, gradient_dtype_);
  if (!boundary_) return;
  Tensor norm;
  {
    Tensor length;
    {
      const Tensor wide = reduced("_to_copy", n, DType::float64);
      length = from_reduce_pool(device_scalar("linalg_vector_norm", DType::float64, tape_));
    }
    norm = from_reduce_pool(device_scalar("pow", DType::float64, tape_));
  }
  norms_[&p] = from_reduce_pool(device_scalar("pow", DType::float64, tape_));
  norm.reset();
  if (gradient_dtype_ != DType::float32) reduced("_to_copy", n, DType::float32);
}

void Zero3::after_backward() {
  returned_loss_.reset();
  reduce_bucket();
  parameters_.after_backward();
  ++micro_step_;
}

// ---- the update -------------------------------------------------------------------------------------------------------------
void Zero3::step() {
  parameters_.release_all();
  if (dtype_ == DType::float16) check_overflow();
  Tensors norms;  // of the sub-groups, until the step has ended
  Tensor scaled;
  if (settings_.offload_optimizer) {
    for (const SubGroup& group : groups_) complete_norm(group);
  } else {
    for (const SubGroup& group : groups_) norms.push_back(group_norm(group));
    {
      const Tensor stacked = temporary("stack", {static_cast<int64_t>(norms.size())}, DType::float64, tape_);
      scaled = device_scalar("linalg_vector_norm", DType::float64, tape_);
    }
    global_norm_ = temporary("div", scaled);
    for (SubGroup& group : groups_) update(group);
  }
  norms_.clear();
  parameters_.gather_persistent();
  reported_norm_ = global_norm_;
  micro_step_ = 0;
}

// complete_grad_norm_calculation_for_cpu_offload: the result goes to the host.
void Zero3::complete_norm(const SubGroup& group) {
  Tensor total;
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    const Tensor square = device_scalar("pow", DType::float64, tape_);
    if (!total) total = device_scalar("add", DType::float64, tape_);
  }
  const Tensor sum = temporary("empty", {1}, DType::float32, tape_);
  total = device_scalar("pow", DType::float32, tape_);
  mask_infinite(total);
}

// get_grad_norm_direct: each part in fp64.
Tensor Zero3::group_norm(const SubGroup& group) {
  const DType wide = DType::float64;
  Tensors norms;
  for (const Parameter* p : group.parameters) {
    const Tensor grad = temporary("_to_copy", {parameters_.partition(*p)}, wide, tape_);
    norms.push_back(device_scalar("linalg_vector_norm", wide, tape_));
  }
  Tensor sum;
  {
    Tensor squares = temporary("stack", {static_cast<int64_t>(norms.size())}, wide, tape_);
    squares = temporary("pow", squares);
    sum = device_scalar("sum", wide, tape_);
  }
  const Tensor total = device_scalar("pow", wide, tape_);
  const Tensor inf = device_scalar("isinf", DType::bool_, tape_), nan = device_scalar("isnan", DType::bool_, tape_);
  const Tensor either = device_scalar("logical_or", DType::bool_, tape_);
  const Tensor error = device_scalar("empty", DType::float32, tape_);
  return device_scalar("where", wide, tape_);
}

// has_overflow
void Zero3::check_overflow() {
  if (settings_.offload_optimizer) return;  // on the host
  for (const char* op : {"isinf", "isnan"}) {
    const Tensor flags = from_reduce_pool(temporary(op, grads_.sizes(), DType::bool_, tape_));
    const Tensor any = from_reduce_pool(device_scalar("any", DType::bool_, tape_));
  }
  const Tensor clone = from_reduce_pool(temporary("clone", {1}, DType::bool_, tape_));
  const Tensor flag = from_reduce_pool(temporary("_to_copy", {1}, DType::uint8, tape_));
}

void Zero3::update(SubGroup& group) {
  {
    const bool joins = group.parameters.size() > 1;
    const Tensor flat = joins ? temporary("cat", {group.elements}, gradient_dtype_, tape_) : alias(grads_, {group.elements}, {1});
    group.master.grad = gradient_dtype_ == DType::float32 ? flat : temporary("_to_copy", {group.elements}, DType::float32, tape_);
  }
  unscale_and_clip(DType::float64, tape_);
  group.optimizer->step({&group.master});
  group.master.grad.reset();
}

}  // namespace

std::unique_ptr<DeepSpeedEngine> make_zero_3(const Job& job, Model& model, const std::vector<Parameter*>& trained) {
  return std::make_unique<Zero3>(job, model, trained);
}

}  // namespace plimsoll
