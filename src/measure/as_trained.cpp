#include "measure/as_trained.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "job/distribution.h"
#include "job/settings.h"
#include "measure/live_model.h"
#include "model/resolve.h"
#include "util/error.h"

namespace plimsoll::measure {

namespace {

// The AI Toolkit's file and kohya's command describe a pipeline; what --config says is of its denoiser.
void take_denoiser(Job& job, const Note& note) {
  if (job.family != "diffusion-trainer") return;
  Job denoiser;
  denoiser.model = job.config.text({"denoiser"}, "");
  resolve_model(denoiser);
  require_live(denoiser.family);
  note("the denoiser alone is trained: latents and text states are inputs, and no encoder runs");
  const Config pipeline = std::exchange(job.config, denoiser.config);
  job.family = denoiser.family;
  constexpr std::string_view kPrefix = "config.";
  const std::map<std::string, std::string> origins = job.origin;
  for (const auto& [setting, origin] : origins)
    if (origin == "--config" && setting.starts_with(kPrefix))
      if (const std::string key = setting.substr(kPrefix.size()); const nlohmann::json* value = pipeline.find({key.c_str()}))
        apply_setting(job, "config", {{key, *value}}, origin);
}

void take_one_device(Job& job, const Note& note) {
  if (job.program.framework == Framework::jax) {
    note("op by op in libtorch: what JAX compiles is not run here");
    if (job.program.jax.replicas > 1)
      note(fmt::format("one of {} devices is trained, with its batch of {}", job.program.jax.replicas, job.batch));
    job.program.framework = Framework::pytorch;
    job.program.jax = {};
  }
  if (job.parallel.ddp) {
    note(fmt::format("one of {} processes is trained, with its batch of {} x {}, and without DDP's buckets", world_size(job), job.batch,
                     job.accumulation));
    job.parallel.ddp.reset();
  }
  if (is_distributed(job))
    throw Error(fmt::format("[measure] {}: one process trains here, with whole weights", layout_text(job)),
                "leave out the settings that shard the model");
}

void take_precision(Job& job, const Note& note) {
  std::optional<AdapterSettings>& adapter = job.tuning.adapter;
  const bool half = job.precision == Precision::bf16 || job.precision == Precision::fp16;
  if (half && !adapter)
    throw Error(fmt::format("[measure] precision {}: weights are in fp32 here", to_string(job.precision)),
                "add --precision fp32 or --precision amp");
  if (half) {
    note(fmt::format("the frozen weights are in fp32, under bf16 autocast, not in {}", to_string(job.precision)));
    job.precision = Precision::amp;
  }
  if (job.precision == Precision::amp_fp16) note("bf16 autocast instead of fp16, which the CPU does not have");
  if (adapter && std::exchange(adapter->ai_toolkit, false)) note("LoRA is computed as PEFT's, not as the AI Toolkit's");
}

[[noreturn]] void only_simulated(const std::string& what, const std::string& hint) {
  throw Error(fmt::format("[measure] {} is simulated, not run", what), hint);
}

void check_optimizer(const Job& job) {
  if (job.optimizer.name != "AdamW") only_simulated("optimizer " + job.optimizer.name, "add --optimizer AdamW");
  if (job.offload_optimizer) only_simulated("an optimizer on the host", "leave offload_optimizer out");
  if (job.optimizer_in_backward) only_simulated("an update in backward", "leave --optimizer-in-backward out");
  if (job.master_weights || job.gradient_dtype != GradientType::weights)
    only_simulated("a copy of the weights or gradients in another type", "leave --master-weights and --gradient-dtype out");
  const EmaSettings& ema = job.averaging;
  const bool known = ema.update == EmaUpdate::loop || ema.update == EmaUpdate::diffusers || ema.update == EmaUpdate::ai_toolkit;
  if (job.ema && (!known || ema.place != EmaPlace::device || ema.dtype != EmaType::weights))
    only_simulated(to_string(ema), "leave it out, or take plain --ema");
}

void check_tuning(const Job& job) {
  const std::optional<AdapterSettings>& adapter = job.tuning.adapter;
  if (job.tuning.quantization ||
      (adapter && (adapter->kind != AdapterKind::lora || adapter->use_dora || !adapter->modules_to_save.empty())))
    throw Error("[measure] of adapters plain LoRA is run here, on a base that is not quantised",
                "e.g. --lora r=8,target_modules=to_q+to_v; without --quantize");
  if (job.swap_blocks > 0) only_simulated("swapping blocks", "leave --swap-blocks out");
}

// `before_forward` drops the gradients a little later, where no peak is.
void check_loop(const Job& job) {
  if (job.compile) only_simulated("torch.compile", "leave --compile out");
  if (job.offload_activations != Offload::none) only_simulated("keeping activations on the host", "leave --offload-activations out");
  if (job.loss != Loss::model || job.loss_settings.kernel != LossKernel::model)
    only_simulated("another loss than the model's own", "leave --loss and --loss-kernel out");
  if (job.collation.padding != Padding::none || !job.collation.lengths.empty())
    only_simulated("a batch of samples of several lengths", "leave --padding and --lengths out: samples are alike here");
  if (job.zero_grad == ZeroGrad::before_backward) only_simulated("dropping gradients before backward", "leave --zero-grad out");
  if (job.drop_after || job.warm_optimizer) only_simulated("dropping the loss, or states from before", "leave --drop-after out");
}

}  // namespace

Job as_trained_here(Job job, const Note& note) {
  take_denoiser(job, note);
  require_live(job.family);
  take_one_device(job, note);
  take_precision(job, note);
  check_optimizer(job);
  check_tuning(job);
  check_loop(job);
  return job;
}

}  // namespace plimsoll::measure
