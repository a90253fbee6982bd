#include "step/offloaded_optimizer.h"

#include <fmt/format.h>

#include <bit>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>

#include "job/distribution.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kMinimalSize = 4096;  // elements

// The library takes the fused form of AdamW unless told otherwise.
OptimizerSpec with_defaults(const OptimizerSpec& spec) {
  OptimizerSpec out = spec;
  nlohmann::json args = spec.args.values().is_object() ? spec.args.values() : nlohmann::json::object();
  if (spec.name == "AdamW" && !args.contains("fused")) args["fused"] = true;
  out.args = Config(spec.args.source(), args);
  return out;
}

Bytes pinned(const Tensor& t) {
  const int64_t bytes = checked_mul(t.numel(), size_of(t.dtype()));
  return {bytes > 0 ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))) : 0};
}

}  // namespace

Bytes states_of(const OptimizerSpec& spec, const std::vector<Parameter*>& parameters) {
  Tape host;
  std::deque<Parameter> copies;
  std::vector<Parameter*> all;
  for (const Parameter* p : parameters) {
    Parameter& copy = copies.emplace_back();
    make_parameter(host, copy, p->value.sizes(), p->value.dtype());
    copy.grad = empty_like(copy.value);
    all.push_back(&copy);
  }
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec.name, spec.args);
  optimizer->attach(all);
  optimizer->step(all);
  Bytes total;
  for (const Tensor& s : optimizer->states()) total += Bytes{s.storage().bytes};
  return total;
}

void check_offloaded_optimizer(const Job& job, Problems& out) {
  if (!job.offload_optimizer) return;
  const auto refuse = [&](const std::string& what, const std::string& why, const std::string& hint) {
    out.push_back({fmt::format("[job] offload_optimizer with {}: {}", what, why), hint});
  };
  const bool gradients = job.offload_optimizer->gradients;
  for (const OptimizerEntry& e : optimizer_registry())
    if (lower(job.optimizer.name) == lower(e.name) && std::string(e.library) != "torch.optim")
      refuse(job.optimizer.name, fmt::format("{} updates parameters on the device alone", e.library),
             "torch.optim's run on the host: AdamW, Adam, SGD, Adagrad, ...; or leave offload_optimizer out");
  if (is_distributed(job)) refuse(layout_text(job), "torchao offloads on one device alone", "leave one of them out");
  if (job.optimizer_in_backward) refuse("optimizer_in_backward", "both take the gradient from its hook", "leave one of them out");
  if (job.master_weights) refuse("master_weights", "the copies on the host have the weights' type", "leave one of them out");
  if (job.precision == Precision::amp_fp16 && job.loss_scaling)
    refuse("loss scaling", "gradients on the host are not unscaled", "take precision amp or bf16, or loss_scaling: false");
  if (gradients && job.accumulation > 1)
    refuse(fmt::format("gradients and accumulation {}", job.accumulation), "a gradient that has left the device is not added to",
           "set accumulation to 1, or gradients to false");
  if (gradients && job.clip)
    refuse(fmt::format("gradients and clip {}", *job.clip), "clip_grad_norm_ finds no gradients on the device", "leave one of them out");
}

OffloadedOptimizer::OffloadedOptimizer(const OptimizerSpec& spec, bool gradients, Tape& tape)
    : spec_(with_defaults(spec)), gradients_(gradients), tape_(tape), on_device_(make_optimizer(spec_.name, spec_.args)) {}

OffloadedOptimizer::~OffloadedOptimizer() { tape_.gradient_arrived = nullptr; }

void OffloadedOptimizer::attach(const std::vector<Parameter*>& parameters) {
  std::vector<Parameter*> large;
  for (Parameter* p : parameters) (p->value.numel() < kMinimalSize ? small_ : large).push_back(p);
  for (const Parameter* p : large) on_host_ += pinned(p->value) + pinned(p->value);
  on_host_ += states_of(spec_, large);
  on_device_->attach(small_);
  if (gradients_)
    tape_.gradient_arrived = [gone = std::set<Parameter*>(large.begin(), large.end())](Parameter& p) {
      if (gone.contains(&p)) p.grad.reset();
    };
}

void OffloadedOptimizer::step(const std::vector<Parameter*>&) { on_device_->step(small_); }

}  // namespace plimsoll
