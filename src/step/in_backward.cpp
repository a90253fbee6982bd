#include "step/in_backward.h"

#include <fmt/format.h>

#include "job/distribution.h"
#include "util/text.h"

namespace plimsoll {

bool is_lomo(const std::string& optimizer) { return lower(optimizer) == "lomo" || lower(optimizer) == "adalomo"; }

bool steps_in_backward(const Job& job) { return job.optimizer_in_backward || is_lomo(job.optimizer.name); }

void check_step_in_backward(const Job& job, Problems& out) {
  if (!steps_in_backward(job)) return;
  const auto refuse = [&](const std::string& what, const std::string& why, const std::string& hint) {
    out.push_back({fmt::format("[job] optimizer_in_backward with {}: {}", what, why), hint});
  };
  if (job.clip)
    refuse(fmt::format("clip {}", *job.clip), "the norm of all gradients is not known when the first one is used and dropped",
           "leave one of them out");
  if (job.accumulation > 1)
    refuse(fmt::format("accumulation {}", job.accumulation), "every backward updates the weights, so nothing is left to add to",
           "set accumulation to 1 and take a larger batch, or leave optimizer_in_backward out");
  if (job.precision == Precision::amp_fp16 && job.loss_scaling)
    refuse("loss scaling", "GradScaler looks at all gradients before it lets any step be taken",
           "take precision amp or bf16, or loss_scaling: false");
  if (is_distributed(job)) refuse(layout_text(job), "gradients are reduced in buckets first", "leave one of them out");
  if (job.master_weights) refuse("master_weights", "those are updated after backward", "leave one of them out");
  if (job.optimizer.name == "Muon+AdamW")
    refuse("Muon+AdamW", "a recipe of two optimizers is not one for each parameter", "take AdamW, or leave one of them out");
}

StepInBackward::StepInBackward(const OptimizerSpec& spec, Tape& tape, const std::vector<Parameter*>& trained,
                               const std::vector<LinearWeight>& linear_layers)
    : tape_(tape) {
  for (Parameter* p : trained) {
    One& one = each_[p];
    one.parameter = {p};
    one.optimizer = make_optimizer(spec.name, spec.args);
    one.optimizer->know_linear_layers(linear_layers);
    one.optimizer->attach(one.parameter);
    if (!tape.dialect.recorder)
      for (const Tensor& s : one.optimizer->states()) tape.relabel(s, Category::optimizer_state);
  }
  tape.gradient_arrived = [this, late = is_lomo(spec.name)](Parameter& p) {
    if (!late) return step(p);
    finish();
    waiting_ = &p;
  };
}

StepInBackward::~StepInBackward() { tape_.gradient_arrived = nullptr; }

void StepInBackward::finish() {
  if (waiting_) step(*waiting_);
  waiting_ = nullptr;
}

void StepInBackward::step(Parameter& p) {
  const auto one = each_.find(&p);
  if (one == each_.end()) return;
  const Phase phase = tape_.phase();
  tape_.begin_phase(Phase::optimizer);
  one->second.optimizer->step(one->second.parameter);
  for (const Tensor& s : one->second.optimizer->states()) tape_.relabel(s, Category::optimizer_state);
  p.grad.reset();
  tape_.begin_phase(phase);
}

Tensors StepInBackward::states() const {
  Tensors out;
  for (const auto& [parameter, one] : each_)
    for (const Tensor& s : one.optimizer->states()) out.push_back(s);
  return out;
}

Bytes StepInBackward::managed() const {
  Bytes total;
  for (const auto& [parameter, one] : each_) total += one.optimizer->managed();
  return total;
}

Bytes StepInBackward::on_host() const {
  Bytes total;
  for (const auto& [parameter, one] : each_) total += one.optimizer->on_host();
  return total;
}

}  // namespace plimsoll
