#include "report/job_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/host_report.h"

namespace plimsoll {

namespace {

std::string sample_text(const Job& j, const std::string& own) {
  if (j.inputs == InputKind::own) return own;
  if (j.inputs == InputKind::image) return fmt::format("{0} x {0} pixels", j.seq);
  return fmt::format("{} {}", j.seq, j.inputs == InputKind::vector ? "numbers" : "tokens");
}

}  // namespace

std::string recipe_text(const Job& j, const std::string& sample) {
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
  if (j.parallel.any()) out += ", " + to_string(j.parallel);
  if (j.tuning.adapter) out += ", " + to_string(*j.tuning.adapter);
  if (j.tuning.quantization) out += ", " + to_string(*j.tuning.quantization);
  if (j.framework == Framework::jax) out += ", JAX, " + to_string(j.jax);
  return out;
}

nlohmann::ordered_json job_json(const Job& job) {
  nlohmann::ordered_json j{{"model", job.model},
                           {"family", job.family},
                           {"config", job.config.values()},
                           {"batch", job.batch},
                           {"seq", job.seq},
                           {"inputs", to_string(job.inputs)},
                           {"precision", to_string(job.precision)},
                           {"autocast", job.autocast},
                           {"loss", to_string(job.loss)},
                           {"loss_kernel", to_string(job.loss_settings.kernel)},
                           {"collate", to_string(job.collation.collate)},
                           {"attention", to_string(job.attention)},
                           {"checkpointing", to_json(job.checkpointing)},
                           {"offload_activations", to_string(job.offload_activations)},
                           {"compile", job.compile},
                           {"optimizer", {{"name", job.optimizer.name}, {"args", job.optimizer.args.values()}}},
                           {"accumulation", job.accumulation},
                           {"clip", job.clip ? nlohmann::ordered_json(*job.clip) : nlohmann::ordered_json(nullptr)},
                           {"optimizer_in_backward", job.optimizer_in_backward},
                           {"master_weights", job.master_weights ? "fp32" : "none"},
                           {"gradient_dtype", to_string(job.gradient_dtype)},
                           {"ema", job.ema},
                           {"ema_place", to_string(job.averaging.place)},
                           {"ema_dtype", to_string(job.averaging.dtype)},
                           {"ema_update", to_string(job.averaging.update)},
                           {"loss_scaling", job.loss_scaling},
                           {"drop_output", job.drop_output},
                           {"drop_after", job.drop_after},
                           {"steps", job.steps}};
  if (job.swap_blocks > 0) j["swap_blocks"] = job.swap_blocks;
  if (job.offload_optimizer) j["offload_optimizer"] = {{"gradients", job.offload_optimizer->gradients}};
  if (!job.alloc_conf.empty()) j["alloc_conf"] = job.alloc_conf;
  if (job.framework == Framework::jax) {
    j["framework"] = to_string(job.framework);
    j["jax"] = to_json(job.jax);
  }
  if (job.parallel.ddp) j["ddp"] = to_json(*job.parallel.ddp);
  if (job.parallel.zero1) j["zero1"] = to_json(*job.parallel.zero1);
  if (job.parallel.fsdp) j["fsdp"] = to_json(*job.parallel.fsdp);
  if (job.parallel.fsdp1) j["fsdp1"] = to_json(*job.parallel.fsdp1);
  if (job.parallel.deepspeed) j["zero"] = to_json(*job.parallel.deepspeed);
  if (job.parallel.tensor) j["tensor_parallel"] = to_json(*job.parallel.tensor);
  if (job.parallel.megatron) j["megatron"] = to_json(*job.parallel.megatron);
  if (job.parallel.torchtitan) j["torchtitan"] = to_json(*job.parallel.torchtitan);
  if (job.tuning.adapter) j[to_string(job.tuning.adapter->kind)] = to_json(*job.tuning.adapter);
  if (job.tuning.quantization) j["quantization"] = to_json(*job.tuning.quantization);
  if (!job.tuning.frozen.empty()) j["frozen"] = job.tuning.frozen;
  if (!job.tuning.trainable.empty()) j["trainable"] = job.tuning.trainable;
  j["host"] = host_settings_json(job.host);
  j["origin"] = job.origin;
  return j;
}

}  // namespace plimsoll
