#include "job/jax_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "job/named_value.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr std::array kFrameworks{"pytorch", "jax"};
constexpr std::array kDeviceKinds{"gpu", "tpu"};

double fraction(const Config& c) {
  const double f = c.number({"mem_fraction"}, 0.75);
  if (!(f > 0 && f <= 1)) throw Error(fmt::format("[job] mem_fraction {} is not above 0 and at most 1", f), "XLA's default is 0.75");
  return f;
}

constexpr std::array kOnlyJax{"donate", "replicas", "global_batch", "device_kind", "mem_fraction", "preallocate"};
constexpr std::array kBoth{"model",     "config",        "batch",        "seq",       "inputs",         "precision",
                           "attention", "checkpointing", "loss",         "optimizer", "optimizer_args", "frozen",
                           "clip",      "trainable",     "accumulation", "ema",       "framework"};

template <size_t N>
bool is_in(const std::array<const char*, N>& names, const std::string& key) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return key == name; });
}

// What a JAX program has in the place of a setting that is PyTorch's.
std::string instead_of(const std::string& key) {
  if (key == "ddp" || key == "zero1" || key == "fsdp" || key == "fsdp1" || key == "zero" || key == "tensor_parallel" || key == "megatron" ||
      key == "torchtitan")
    return "with framework jax: replicas, each device with a full copy of the state";
  if (key == "lora" || key == "lokr" || key == "ia3" || key == "ln_tuning" || key == "quantization")
    return "PEFT and bitsandbytes are PyTorch's; with framework jax whole modules are trained: frozen, trainable";
  if (key == "autocast") return "with framework jax: precision amp is dtype=bfloat16 with param_dtype=float32";
  if (key == "eval_batch" || key == "longest" || key == "steps" || key == "sample_tokens")
    return "every call of one compiled train step needs the same: ask about other shapes in a job of their own";
  return fmt::format("with framework jax there are: {}, {}", fmt::join(kBoth, ", "), fmt::join(kOnlyJax, ", "));
}

}  // namespace

const char* to_string(Framework f) { return kFrameworks[static_cast<size_t>(f)]; }
const char* to_string(DeviceKind k) { return kDeviceKinds[static_cast<size_t>(k)]; }

std::string to_string(const JaxSettings& s) {
  std::string out = s.donate ? "state donated" : "state not donated";
  if (s.replicas > 1) out += fmt::format(", {} replicas", s.replicas);
  return out;
}

nlohmann::ordered_json to_json(const JaxSettings& s) {
  return {{"donate", s.donate},
          {"replicas", s.replicas},
          {"device_kind", s.device_kind ? nlohmann::ordered_json(to_string(*s.device_kind)) : nlohmann::ordered_json(nullptr)},
          {"mem_fraction", s.mem_fraction},
          {"preallocate", s.preallocate}};
}

std::vector<Setting> jax_setting_entries() {
  return {
      {"framework", "pytorch|jax", "who runs the step: PyTorch op by op, or JAX as one program that XLA compiles (docs/xla.md)",
       [](Job& j, const Config& c) { j.framework = one_of<Framework>(kFrameworks, c, "framework"); }},
      {"donate", "true|false", "jax: donate_argnums of the train state, so that it is updated in place (default false)",
       [](Job& j, const Config& c) { j.jax.donate = c.flag({"donate"}, false); }},
      {"replicas", "N", "jax: devices under pmap, each with a full copy and its own batch (default 1)",
       [](Job& j, const Config& c) { j.jax.replicas = c.size({"replicas"}, 1); }},
      {"global_batch", "N", "jax: samples of all replicas together, in the place of batch; pmap wants it divisible by them",
       [](Job& j, const Config& c) { j.batch = c.size({"global_batch"}, 1); }},
      {"device_kind", "gpu|tpu", "jax: whose layouts and allocator (default: those of --gpu, else gpu)",
       [](Job& j, const Config& c) { j.jax.device_kind = one_of<DeviceKind>(kDeviceKinds, c, "device_kind"); }},
      {"mem_fraction", "SHARE", "jax: XLA_PYTHON_CLIENT_MEM_FRACTION (default 0.75)",
       [](Job& j, const Config& c) { j.jax.mem_fraction = fraction(c); }},
      {"preallocate", "true|false", "jax: XLA_PYTHON_CLIENT_PREALLOCATE (default true)",
       [](Job& j, const Config& c) { j.jax.preallocate = c.flag({"preallocate"}, true); }},
  };
}

void check_framework(const Job& job) {
  for (const Setting& s : job_settings()) {
    const std::string key = s.key;
    if (!job.origin.contains(key)) continue;
    if (job.framework == Framework::pytorch && is_in(kOnlyJax, key))
      throw Error(fmt::format("[job] {} is a setting of framework jax, and the framework is pytorch", key),
                  "add framework: jax, or leave it out");
    if (job.framework == Framework::jax && !is_in(kOnlyJax, key) && !is_in(kBoth, key))
      throw Error(fmt::format("[job] framework jax has no {}", key), instead_of(key));
  }
  if (job.framework == Framework::pytorch) return;
  if (job.checkpointing.reentrant || !job.checkpointing.save.empty())
    throw Error("[job] framework jax: checkpointing is neither reentrant nor selective by op",
                "jax.checkpoint of whole blocks or modules: true, every=K, modules=A+B");
  if (job.attention == AttentionKernel::efficient || job.attention == AttentionKernel::math)
    throw Error(fmt::format("[job] framework jax has no {} attention", to_string(job.attention)),
                "auto and eager materialise the weights as flax does; flash is cuDNN's or the Pallas kernel");
}

}  // namespace plimsoll
