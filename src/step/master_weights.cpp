#include "step/master_weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "job/distribution.h"
#include "optim/foreach.h"

namespace plimsoll {

void check_master_weights(const Job& job, Problems& out) {
  if (!job.master_weights) {
    if (job.gradient_dtype != GradientType::weights)
      out.push_back({fmt::format("[job] gradient_dtype {} without master_weights: PyTorch's gradients have the type of their weights",
                                 to_string(job.gradient_dtype)),
                     "set master_weights to fp32, or leave gradient_dtype out"});
    return;
  }
  if (job.precision != Precision::bf16 && job.precision != Precision::fp16)
    out.push_back({fmt::format("[job] master_weights fp32: the weights of precision {} are fp32 already", to_string(job.precision)),
                   "set precision to bf16 or fp16, or leave master_weights out"});
  const GradientType own = job.precision == Precision::bf16 ? GradientType::bf16 : GradientType::fp16;
  if (job.gradient_dtype != GradientType::weights && job.gradient_dtype != GradientType::fp32 && job.gradient_dtype != own)
    out.push_back({fmt::format("[job] gradient_dtype {}: gradients of {} weights are {} or summed in fp32", to_string(job.gradient_dtype),
                               to_string(job.precision), to_string(own)),
                   fmt::format("set gradient_dtype to {} or fp32", to_string(own))});
  if (is_distributed(job)) out.push_back({"[job] master_weights with " + layout_text(job) + " is not simulated", "leave one of them out"});
}

MasterWeights::MasterWeights(bool fp32_gradients, Tape& tape, const std::vector<Parameter*>& trained) : tape_(tape) {
  for (Parameter* p : trained) {
    if (!is_half(p->value.dtype())) {
      parameters_.push_back(p);
      continue;
    }
    Pair& pair = pairs_.emplace_back();
    pair.weight = p;
    pair.copy.name = p->name;
    const ScopeGuard module(tape, tape.scope_of(p->value));
    make_parameter(tape, pair.copy, p->value.sizes(), DType::float32);
    tape.relabel(pair.copy.value, Category::optimizer_state);
    parameters_.push_back(&pair.copy);
  }
  if (fp32_gradients) make_buffer(tape);
}

MasterWeights::~MasterWeights() { tape_.gradient_arrived = nullptr; }

void MasterWeights::make_buffer(Tape& tape) {
  int64_t elements = 0;
  for (const Pair& p : pairs_) elements = checked_add(elements, p.weight->value.numel());
  const Tensor buffer = temporary("main_grad", {elements}, DType::float32, tape);
  tape.relabel(buffer, Category::gradient);
  for (Pair& p : pairs_) p.main_grad = alias(buffer, p.weight->value.sizes(), p.weight->value.strides());
  tape.gradient_arrived = [this](Parameter& p) {
    if (std::any_of(pairs_.begin(), pairs_.end(), [&](const Pair& pair) { return pair.weight == &p; })) p.grad.reset();
  };
}

void MasterWeights::take_gradients() {
  for (Pair& p : pairs_) {
    if (p.main_grad) {
      p.copy.grad = p.main_grad;
    } else if (p.weight->grad) {
      p.copy.grad = temporary("_to_copy", p.weight->value.sizes(), DType::float32, tape_);
      tape_.relabel(p.copy.grad, Category::gradient);
      p.weight->grad.reset();
    }
  }
}

void MasterWeights::drop_gradients() {
  for (Pair& p : pairs_) p.copy.grad.reset();
}

}  // namespace plimsoll
