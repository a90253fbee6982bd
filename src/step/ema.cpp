#include "step/ema.h"

#include <algorithm>

#include "optim/foreach.h"
#include "tensor/number.h"

namespace plimsoll {

namespace {

// Category::ema while it lives.
class EmaCategory {
 public:
  explicit EmaCategory(Tape& tape) : tape_(tape) { tape.category = Category::ema; }
  ~EmaCategory() { tape_.category.reset(); }

 private:
  Tape& tape_;
};

Bytes bytes_of(int64_t elements, DType dtype) { return {checked_mul(elements, size_of(dtype))}; }

}  // namespace

MovingAverage::MovingAverage(const EmaSettings& settings, Tape& tape, const std::vector<Parameter*>& parameters, const Tensors& buffers)
    : settings_(settings), tape_(tape), parameters_(parameters) {
  const EmaCategory category(tape);
  const bool host = settings.place == EmaPlace::host, averaged_model = settings.update == EmaUpdate::averaged_model;
  for (const Parameter* p : parameters) {
    const Bytes bytes = bytes_of(p->value.numel(), type_of(p->value));
    on_host_ += host ? bytes : Bytes{};
    // AveragedModel keeps a list of all parameters on its device; the loop has one at a time. EMAModel sends itself to the device.
    if (host && averaged_model) host_transfer_ += bytes;
    if (host && settings.update == EmaUpdate::lerp) host_transfer_ = std::max(host_transfer_, bytes);
    if (!host || averaged_model) shadow_.push_back(copy("clone", p->value));
  }
  if (!averaged_model) return;
  for (const Tensor& s : shadow_)
    if (std::find(by_type_.begin(), by_type_.end(), s.dtype()) == by_type_.end()) by_type_.push_back(s.dtype());
  for (const Tensor& b : buffers) buffers_.push_back(temporary("clone", b));
  if (!host) return;
  shadow_.clear();  // deepcopy on the device, then .to(host)
  for (const Tensor& b : buffers_) on_host_ += Bytes{b.storage().bytes};
  buffers_.clear();
}

DType MovingAverage::type_of(const Tensor& value) const {
  if (!is_floating(value.dtype())) return value.dtype();
  switch (settings_.dtype) {
    case EmaType::weights: return value.dtype();
    case EmaType::fp32: return DType::float32;
    case EmaType::bf16: return DType::bfloat16;
    case EmaType::fp16: return DType::float16;
  }
  return value.dtype();
}

Tensor MovingAverage::copy(const char* op, const Tensor& value) const {
  const ScopeGuard module(tape_, tape_.scope_of(value));
  Op guard(tape_, op, {});
  return empty_like(value, type_of(value));
}

void MovingAverage::update() {
  tape_.begin_phase(Phase::ema);
  const bool visits = settings_.place == EmaPlace::host && settings_.update <= EmaUpdate::diffusers_foreach;
  if (visits) {  // diffusers' --offload_ema: ema.to(device), step, ema.to("cpu")
    const EmaCategory category(tape_);
    for (const Parameter* p : parameters_) shadow_.push_back(copy("_to_copy", p->value));
  }
  switch (settings_.update) {
    case EmaUpdate::loop:
    case EmaUpdate::diffusers: subtract(); break;
    case EmaUpdate::diffusers_foreach: subtract_foreach(); break;
    case EmaUpdate::lerp: lerp(); break;
    case EmaUpdate::averaged_model: average(); break;
    case EmaUpdate::ai_toolkit: subtract_in_fp32(); break;
  }
  if (visits) shadow_.clear();
}

// shadow.sub_(one_minus_decay * (shadow - parameter)); diffusers copies what is frozen
void MovingAverage::subtract() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (settings_.update == EmaUpdate::diffusers && !parameters_[i]->value.requires_grad()) continue;
    const Tensor difference = temporary("sub", shadow_[i], parameters_[i]->value);
    const Number share(tape_, difference.dtype());
    temporary("mul", difference);
  }
}

void MovingAverage::subtract_foreach() {
  Tensors shadow, values;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i]->value.requires_grad()) continue;
    shadow.push_back(shadow_[i]);
    values.push_back(parameters_[i]->value);
  }
  foreach_op("_foreach_sub", shadow, values);
}

// One foreach kernel in place for each type, with the count of updates on the device, or everything on the host.
void MovingAverage::average() {
  if (settings_.place == EmaPlace::host) return;
  for (size_t i = 0; i < by_type_.size(); ++i) temporary("_to_copy", Dims{}, DType::int64, tape_);
}

// The parameter in the type of the average first; a copy between devices changes types where it comes from (Copy.cu).
void MovingAverage::lerp() {
  for (const Parameter* p : parameters_)
    if (type_of(p->value) != p->value.dtype()) copy("_to_copy", p->value);
}

// The AI Toolkit's toolkit/ema.py: the difference in fp32, scaled and subtracted in place; what is in another type is rounded back with
// random bits (copy_stochastic).
void MovingAverage::subtract_in_fp32() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& value = parameters_[i]->value;
    const bool converts = value.dtype() != DType::float32;
    const Tensor average = converts ? temporary("_to_copy", value.sizes(), DType::float32, tape_) : shadow_[i];
    const Tensor parameter = converts ? temporary("_to_copy", value.sizes(), DType::float32, tape_) : value;
    const Tensor difference = temporary("sub", average, parameter);
    { const Number share(tape_, difference.dtype()); }
    if (converts) temporary("randint_like", value.sizes(), DType::int32, tape_);
  }
}

}  // namespace plimsoll
