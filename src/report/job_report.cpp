#include "report/job_report.h"

#include <fmt/format.h>

#include "job/distribution.h"
#include "report/captured_report.h"

namespace plimsoll {

namespace {

std::string sample_text(const Job& j, const std::string& own) {
  if (j.inputs == InputKind::own) return own;
  if (j.inputs == InputKind::image) return fmt::format("{0} x {0} pixels", j.seq);
  return fmt::format("{} {}", j.seq, j.inputs == InputKind::vector ? "numbers" : "tokens");
}

}  // namespace

std::string recipe_text(const Job& j, const std::string& sample) {
  if (j.captured) return captured_text(j);
  const std::string one = sample_text(j, sample);
  std::string out = fmt::format("batch {}{}, {}, {}", j.batch, one.empty() ? "" : " x " + one, to_string(j.precision), j.optimizer.name);
  if (!j.optimizer.args.values().empty()) out += dump(j.optimizer.args.values());
  if (j.checkpointing.on) out += ", " + to_string(j.checkpointing);
  if (j.offload_activations != Offload::none) out += ", activations on the host";
  if (j.attention != AttentionKernel::automatic) out += fmt::format(", {} attention", to_string(j.attention));
  if (j.loss_settings.kernel != LossKernel::model) out += fmt::format(", {} loss", to_string(j.loss_settings.kernel));
  if (j.loss_settings.liger.any()) out += ", Liger layers";
  if (j.collation.collate == Collate::pack) out += ", packed";
  if (j.accumulation > 1) out += fmt::format(", accumulation {}", j.accumulation);
  if (j.clip) out += fmt::format(", clip {}", *j.clip);
  if (j.swap_blocks > 0) out += fmt::format(", {} blocks swapped", j.swap_blocks);
  if (j.offload_optimizer) out += j.offload_optimizer->gradients ? ", optimizer and gradients on the host" : ", optimizer on the host";
  if (j.optimizer_in_backward) out += ", optimizer in backward";
  if (j.master_weights) out += j.gradient_dtype == GradientType::fp32 ? ", fp32 master weights and gradients" : ", fp32 master weights";
  if (j.ema) out += ", " + to_string(j.averaging);
  if (j.compile) out += ", torch.compile";
  if (!j.alloc_conf.empty()) out += ", " + j.alloc_conf;
  if (is_distributed(j)) out += ", " + layout_text(j);
  if (j.tuning.adapter) out += ", " + to_string(*j.tuning.adapter);
  if (j.tuning.quantization) out += ", " + to_string(*j.tuning.quantization);
  if (j.program.framework == Framework::jax) out += ", JAX, " + to_string(j.program.jax);
  return out;
}

std::string recipe_text(const Job& j, const std::string& sample, const std::string& parameters) {
  return j.captured ? recipe_text(j, sample) : fmt::format("{} parameters, {}", parameters, recipe_text(j, sample));
}

}  // namespace plimsoll
