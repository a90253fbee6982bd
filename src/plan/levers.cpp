#include "plan/levers.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>

#include "estimate/estimate.h"
#include "job/settings.h"
#include "model/usual_recipe.h"
#include "plan/candidate.h"
#include "plan/model_levers.h"
#include "plan/parallel_levers.h"
#include "program/run.h"
#include "trace/captured_trace.h"
#include "util/parallel.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// An argument that may be None, or of a type that the optimizer will refuse.
bool is_on(const Json& args, const char* key, bool fallback) {
  const auto it = args.find(key);
  return it != args.end() && it->is_boolean() ? it->get<bool>() : fallback;
}

bool is_adam(const std::string& name) { return name == "AdamW" || name == "Adam"; }

class Catalogue {
 public:
  explicit Catalogue(const Job& job) : job_(job) {}

  std::vector<Lever> all() {
    if (job_.captured) {
      captured();
      return std::move(out_);
    }
    if (job_.program.framework == Framework::jax) {
      jax();
      for (Lever& l : model_levers(job_)) out_.push_back(std::move(l));
      return std::move(out_);
    }
    if (job_.program.megatron) {  // it has its own kernels, types and optimizer
      if (!job_.checkpointing.on)
        add("checkpointing", "recompute every layer", {{"checkpointing", true}}, LeverKind::same_result,
            "about 33 % more time: one more forward of three");
      batch();
    } else {
      activations();
      precision();
      batch();
      optimizer();
      adapters();
      rest();
    }
    for (Lever& l : parallel_levers(job_)) out_.push_back(std::move(l));
    for (Lever& l : model_levers(job_)) out_.push_back(std::move(l));
    return std::move(out_);
  }

 private:
  void add(std::string knob, std::string name, Patch settings, LeverKind kind, std::string cost) {
    out_.push_back({std::move(knob), std::move(name), std::move(settings), kind, std::move(cost)});
  }

  // Shown, but nothing that a search takes.
  void add_shown(std::string knob, std::string name, Patch settings, LeverKind kind, std::string cost) {
    add(std::move(knob), std::move(name), std::move(settings), kind, std::move(cost));
    out_.back().searched = false;
  }

  void add_free(std::string knob, std::string name, Patch settings, std::string cost) {
    add(std::move(knob), std::move(name), std::move(settings), LeverKind::same_result, std::move(cost));
    out_.back().free = true;
  }

  // What its trace can be evaluated for; everything else is another capture.
  void captured() {
    if (job_.captured->find_symbol("batch") && job_.batch > 1)
      add("batch", "half the batch", {{"batch", (job_.batch + 1) / 2}}, LeverKind::different_training,
          "none a sample; smaller steps, unless the script accumulates");
    if (job_.captured->find_symbol("seq") && job_.seq > 128)
      add("seq", "half the sequence", {{"seq", job_.seq / 2}}, LeverKind::different_training, "none, but samples are cut");
    allocator();
  }

  void jax() {
    if (!job_.program.jax.donate) add_free("donate", "the train state donated", {{"donate", true}}, "none: donate_argnums of jit or pmap");
    if (!job_.checkpointing.on)
      add("checkpointing", "jax.checkpoint around every block", {{"checkpointing", true}}, LeverKind::same_result,
          "about 33 % more time: one more forward of three");
    if (job_.precision == Precision::fp32)
      add("precision", "everything in bf16", {{"precision", "bf16"}}, LeverKind::different_numerics,
          "none; small updates are rounded away without fp32 weights");
    if (job_.batch > 1)
      add("batch", "half the batch", {{"batch", (job_.batch + 1) / 2}}, LeverKind::different_training, "none a sample; smaller steps");
  }

  // A training step is about three forwards: one forward, and a backward of two.
  void activations() {
    if (!job_.checkpointing.on) {
      add("checkpointing", "checkpoint every block", {{"checkpointing", true}}, LeverKind::same_result,
          "about 33 % more time: one more forward of three");
      add("checkpointing", "checkpoint every 2nd block", {{"checkpointing", "every=2"}}, LeverKind::same_result,
          "about 17 % more time: half a forward more");
      add("checkpointing", "checkpoint all but matrix products", {{"checkpointing", "save=matmuls"}}, LeverKind::same_result,
          "a few percent more time: only cheap ops run again");
    } else if (!job_.checkpointing.save.empty() || job_.checkpointing.every > 1 || !job_.checkpointing.modules.empty()) {
      add("checkpointing", "checkpoint every block", {{"checkpointing", true}}, LeverKind::same_result,
          "up to 33 % more time: at most one more forward");
    }
    if (job_.offload_activations == Offload::none)
      add("offload", "activations on the host", {{"offload_activations", true}}, LeverKind::same_result, "copies over PCIe");
    if (!job_.compile && !job_.checkpointing.on)
      add_shown("compile", "torch.compile", {{"compile", true}}, LeverKind::same_result,
                "none: it is faster once compiled; an approximation");
    if (job_.attention == AttentionKernel::eager || job_.attention == AttentionKernel::math)
      add_free("attention", "fused attention", {{"attention", "auto"}}, "none: it is faster");
    if (job_.inputs == InputKind::lm && job_.loss_settings.kernel == LossKernel::model && job_.loss == Loss::model) {
      add("loss", "Liger's fused cross-entropy", {{"loss_kernel", "liger"}}, LeverKind::same_result,
          "little: logits chunk by chunk; needs Liger-Kernel");
      add("loss", "cross-entropy in chunks", {{"loss_kernel", "chunked"}}, LeverKind::same_result,
          "little: logits chunk by chunk, as in torchtune");
    }
    if (!job_.drop_output && job_.inputs == InputKind::lm)
      add("output", "drop the logits before backward", {{"drop_output", true}}, LeverKind::same_result, "none: `loss = out.loss; del out`");
  }

  void precision() {
    if (job_.precision == Precision::fp32)
      add("precision", "bf16 autocast", {{"precision", "amp"}}, LeverKind::different_numerics,
          "none: it is faster; results differ by rounding");
    if (job_.precision == Precision::fp32 || job_.precision == Precision::amp || job_.precision == Precision::amp_fp16)
      add("precision", "everything in bf16", {{"precision", "bf16"}}, LeverKind::different_numerics,
          "none; small updates are rounded away without fp32 weights");
  }

  void batch() {
    if (job_.batch % 2 == 0)
      add("batch", "half the batch, twice the accumulation",
          {{"batch", job_.batch / 2}, {"accumulation", checked_mul(job_.accumulation, 2)}}, LeverKind::same_result,
          "little while a half batch still fills the device");
    if (job_.batch > 2)
      add("batch", "batch 1, the rest by accumulation", {{"batch", 1}, {"accumulation", checked_mul(job_.accumulation, job_.batch)}},
          LeverKind::same_result, "much where one sample does not fill the device");
    if (job_.eval_batch > 1)
      add_free("evaluation", "evaluation in batches of 1", {{"eval_batch", 1}}, "none in training; the evaluation takes longer");
    if (job_.seq > 128 && job_.inputs != InputKind::image && !has_own_sides(job_))
      add("seq", "half the sequence", {{"seq", job_.seq / 2}}, LeverKind::different_training, "none, but samples are cut");
    if (job_.seq >= 64 && job_.inputs == InputKind::image)
      add("seq", "smaller images", {{"seq", job_.seq / 2 / 32 * 32}}, LeverKind::different_training, "none, but less is seen");
  }

  void optimizer() {
    const std::string& name = job_.optimizer.name;
    const Json& args = job_.optimizer.args.values();
    if (is_adam(name) && !is_on(args, "fused", false)) {
      add_free("optimizer", "fused optimizer", {{"optimizer_args", {{"fused", true}}}}, "none: it is faster");
      if (is_on(args, "foreach", true))
        add_shown("optimizer", "optimizer parameter by parameter", {{"optimizer_args", {{"foreach", false}}}}, LeverKind::same_result,
                  "a slower update: a kernel for each parameter");
    }
    if (is_adam(name)) {
      add("optimizer", "8-bit AdamW", {{"optimizer", "AdamW8bit"}, {"optimizer_args", Json::object()}}, LeverKind::different_numerics,
          "none to speak of; needs bitsandbytes");
      add_shown("optimizer", "4-bit AdamW", {{"optimizer", "torchao.AdamW4bit"}, {"optimizer_args", Json::object()}},
                LeverKind::different_numerics, "none to speak of; needs torchao");
      add("optimizer", "Adafactor", {{"optimizer", "TransformersAdafactor"}, {"optimizer_args", Json::object()}},
          LeverKind::different_numerics, "a slower update, and another learning rate");
      add("optimizer", "Lion", {{"optimizer", "Lion"}, {"optimizer_args", Json::object()}}, LeverKind::different_numerics,
          "none; another learning rate");
    }
    if (name != "none" && !job_.optimizer_in_backward && !job_.offload_optimizer) {
      add("update", "update in backward", {{"optimizer_in_backward", true}}, LeverKind::same_result,
          "little; gradients never exist together");
      add("update", "optimizer on the host", {{"offload_optimizer", true}}, LeverKind::same_result,
          "an update on the CPU and weights and gradients over PCIe; needs torchao");
      add("update", "optimizer and gradients on the host", {{"offload_optimizer", {{"gradients", true}}}}, LeverKind::same_result,
          "an update on the CPU and weights and gradients over PCIe; needs torchao");
    }
    if (name != "SGD" && name != "none")
      add_shown("optimizer", "SGD without momentum", {{"optimizer", "SGD"}, {"optimizer_args", Json::object()}},
                LeverKind::different_numerics, "none per step; transformers often do not train with it");
  }

  // The base in 4 bits, as it is trained: prepare_model_for_kbit_training turns checkpoints on, and lifts the stream to fp32, and attention
  // with it, unless autocast takes it back.
  Patch in_nf4() const {
    Patch out{{"quantization", "nf4"}};
    if (!job_.trainer.empty()) return out;
    if (job_.precision == Precision::bf16 && !job_.autocast) out.set("autocast", true);
    if (!job_.checkpointing.on) out.set("checkpointing", true);
    return out;
  }

  // With the rest of the recipe said, where a model that is named alone would have it assumed: typed as flags it is the same job.
  Patch with_adapter(Patch adapter) const {
    const Outcome<Job> changed = try_patched(job_, adapter, "what-if");
    if (!changed || !job_.trainer.empty()) return adapter;
    Patch usual = usual_recipe(*changed);
    if (usual.integer("seq") == job_.seq) usual.erase("seq");
    if (usual.contains("seq")) usual.set("seq", job_.seq);
    return merged(usual, adapter);
  }

  void adapters() {
    const bool frozen_base = job_.tuning.adapter && !job_.tuning.quantization;
    if (frozen_base && (job_.inputs == InputKind::lm || job_.inputs == InputKind::cls))
      add("quantization", "the frozen base in nf4", in_nf4(), LeverKind::different_numerics,
          "weights to unpack in every product; needs bitsandbytes");
    if (job_.tuning.adapter || job_.inputs == InputKind::image) return;
    if (trained_from_scratch(job_)) return;
    const Json lora{{"r", 16}, {"target_modules", "all-linear"}};
    add("adapter", "LoRA of rank 16", with_adapter({{"lora", lora}}), LeverKind::different_training, "none; only adapters are trained");
    add("adapter", "QLoRA: LoRA on an nf4 base",
        with_adapter({{"lora", lora}, {"quantization", "nf4"}, {"checkpointing", true}, {"autocast", true}}), LeverKind::different_training,
        "a forward more and weights to unpack; PEFT turns checkpointing on with it");
  }

  void rest() {
    if (job_.tuning.adapter && job_.swap_blocks == 0)
      add("swap", "weights of 4 blocks on the host", {{"swap_blocks", 4}}, LeverKind::same_result,
          "weights over PCIe in forward and backward");
    if (job_.ema && job_.averaging.place == EmaPlace::device)
      add("ema", "moving average on the host", {{"ema_place", "host"}}, LeverKind::same_result, "weights over PCIe after each update");
    if (job_.ema) add("ema", "no moving average", {{"ema", false}}, LeverKind::different_training, "none: it is faster");
    allocator();
  }

  void allocator() {
    if (job_.alloc_conf.find("expandable_segments") == std::string::npos)
      add_free("allocator", "expandable segments",
               {{"alloc_conf", job_.alloc_conf + (job_.alloc_conf.empty() ? "" : ",") + "expandable_segments:True"}},
               "none; an environment variable");
    if (job_.alloc_conf.find("max_split_size_mb") == std::string::npos && job_.alloc_conf.find("expandable") == std::string::npos)
      add_shown("allocator", "large blocks not split",
                {{"alloc_conf", job_.alloc_conf + (job_.alloc_conf.empty() ? "" : ",") + "max_split_size_mb:512"}}, LeverKind::same_result,
                "none to speak of; an environment variable");
  }

  const Job& job_;
  std::vector<Lever> out_;
};

struct Figures {
  Bytes device, allocated;
  Phase phase = Phase::setup;
  Verdict verdict = Verdict::unknown;
};

Figures need_of(Runs& runs, const Job& job, const std::optional<TargetDevice>& target, const Detail& detail = {}) {
  if (!target) {
    const Estimate e = estimate(runs, job, 0);
    return {e.memory ? e.memory->device.bytes : e.peak, e.memory ? e.memory->allocated.bytes : e.peak, e.peak_phase, Verdict::unknown};
  }
  const Fit f = Fitting(runs, job, detail).replay_on(*target);
  return {f.memory.device.bytes, f.memory.allocated.bytes, Phase::setup, f.verdict};
}

// Pinned memory over PCIe 4.0 x16: 25 GB/s of the 31.5 that the link has is what copies reach.
std::string offload_cost(const Run& run) {
  const int64_t bytes = run.simulation.activations_on_host;
  return fmt::format("{} over PCIe and back in each micro-step, {:.2g} s at 25 GB/s, and as much pinned RAM", to_string(Bytes{bytes}),
                     2 * static_cast<double>(bytes) / 25e9);
}

LeverEffect effect_of(Runs& runs, const Job& job, const Lever& lever, const Figures& now, const std::optional<TargetDevice>& target) {
  LeverEffect e;
  e.lever = lever;
  const auto impossible = [&](const std::string& why) {
    e.outcome = LeverOutcome::impossible;
    e.note = why;
    return e;
  };
  const Outcome<Job> patched = try_patched(job, lever.settings, "what-if");
  if (!patched) return impossible(patched.refused->what());
  Job changed = *patched;
  follow_training(changed, job);
  const Detail as_planned{.work = changed.program.framework == Framework::pytorch};  // so that a plan need not execute it again
  Figures then;
  if (const std::optional<Problem> problem = problem_in([&] { then = need_of(runs, changed, target, as_planned); }))
    return impossible(problem->what);
  e.device = then.device;
  e.allocated = then.allocated;
  e.verdict = then.verdict;
  e.saving = now.device - then.device;
  if (changed.offload_activations != job.offload_activations)
    e.lever.cost = offload_cost(*runs.execute(changed, target_of(changed, target ? std::optional(target->spec) : std::nullopt)));
  // Half a percent is less than the overheads around it are known to.
  const int64_t noticed = std::max<int64_t>(now.device.count / 200, 1);
  if (e.saving.count >= noticed) e.outcome = LeverOutcome::saves;
  if (e.saving.count <= -noticed) e.outcome = LeverOutcome::costs_memory;
  return e;
}

}  // namespace

bool moves_to_host(const Patch& settings) {
  return settings.turns_on("offload_activations") || settings.turns_on("offload_optimizer") ||
         settings.integer("swap_blocks").value_or(0) > 0 || settings.text("ema_place") == "host";
}

std::vector<Lever> levers_for(const Job& job) { return Catalogue(job).all(); }

std::vector<Lever> levers_for(const Job& job, const TargetDevice& device) {
  std::vector<Lever> out = levers_for(job);
  if (one_pool(device)) std::erase_if(out, [](const Lever& l) { return moves_to_host(l.settings); });
  return out;
}

std::vector<std::string> levers_left_out(const Job& job, const TargetDevice& device) {
  std::vector<std::string> out;
  if (!one_pool(device)) return out;
  for (const Lever& l : levers_for(job))
    if (moves_to_host(l.settings)) out.push_back(l.name);
  return out;
}

const char* to_string(LeverKind k) {
  switch (k) {
    case LeverKind::same_result: return "same result";
    case LeverKind::different_numerics: return "different numerics";
    case LeverKind::different_training: return "different training";
  }
  return "";
}

const char* to_string(LeverOutcome o) {
  switch (o) {
    case LeverOutcome::saves: return "saves";
    case LeverOutcome::nothing: return "nothing";
    case LeverOutcome::costs_memory: return "takes more";
    case LeverOutcome::impossible: return "impossible";
  }
  return "";
}

WhatIf what_if(Runs& runs, const Job& job, const std::optional<TargetDevice>& target, const OnProgress& tell) {
  const Figures now = need_of(runs, job, target);
  WhatIf w;
  w.device = now.device;
  w.allocated = now.allocated;
  w.peak_phase = target ? estimate(runs, job, 0, target->spec).peak_phase : now.phase;
  if (target) {
    w.target = target->name;
    w.left_out = levers_left_out(job, *target);
  }
  const std::vector<Lever> levers = target ? levers_for(job, *target) : levers_for(job);
  w.effects.resize(levers.size());
  ProgressCounter progress(tell, "changes executed", levers.size());
  // Each looks at what was executed before all of them, so that their number does not depend on which is first.
  std::deque<Runs> each;
  for (size_t i = 0; i < levers.size(); ++i) each.emplace_back(&runs);
  const auto execute_one = [&](size_t i) {
    w.effects[i] = effect_of(each[i], job, levers[i], now, target);
    each[i].forget_large();
    progress.advance();
  };
  parallel_for(levers.size(), execute_one, progress);
  for (Runs& r : each) runs.take(std::move(r));
  std::stable_sort(w.effects.begin(), w.effects.end(), [](const LeverEffect& a, const LeverEffect& b) {
    return std::tuple(a.outcome, b.saving) < std::tuple(b.outcome, a.saving);
  });
  return w;
}

LeverEffect effect_on(Runs& runs, const Job& job, const Lever& lever, const Fit& now) {
  return effect_of(runs, job, lever, {now.memory.device.bytes, now.memory.allocated.bytes, Phase::setup, now.verdict}, now.device);
}

WhatIf what_if(const Job& job, const std::optional<TargetDevice>& target) {
  Runs runs;
  return what_if(runs, job, target);
}

}  // namespace plimsoll
