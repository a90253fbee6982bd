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

Framework parse_framework(const std::string& text) {
  const std::string word = lower(text);
  if (word == "mlx")
    throw Error(
        "[job] framework mlx is not simulated",
        "the nearest answer is PyTorch's on the same chip: leave framework out, --gpu m3-max-64gb; weights, gradients and optimizer "
        "states are the same, MLX may keep other activations");
  if (word == "tensorflow" || word == "tf" || word == "keras")
    throw Error("[job] framework " + printable(word, 40) + " is not simulated", "known: pytorch, jax");
  if (word == "torch") return Framework::pytorch;
  if (word == "flax") return Framework::jax;
  return one_of<Framework>(kFrameworks, text, "framework");
}

double fraction(const Config& c) {
  const double f = c.number({"mem_fraction"}, 0.75);
  if (!(f > 0 && f <= 1)) throw Error(fmt::format("[job] mem_fraction {} is not above 0 and at most 1", f), "XLA's default is 0.75");
  return f;
}

std::vector<std::string> keys_of(Programs programs) {
  std::vector<std::string> keys;
  for (const Setting& s : job_settings())
    if (s.programs == programs) keys.emplace_back(s.key);
  return keys;
}

// What a JAX program has instead of a setting that is PyTorch's.
std::string instead_of(const Setting& s) {
  const std::string key = s.key;
  if (s.group == SettingGroup::parallel) return "with framework jax: replicas, each device with a full copy of the state";
  if (s.group == SettingGroup::adapters)
    return "PEFT and bitsandbytes are PyTorch's; with framework jax whole modules are trained: frozen, trainable";
  if (key == "autocast") return "with framework jax: precision amp is dtype=bfloat16 with param_dtype=float32";
  if (key == "eval_batch" || key == "longest" || key == "steps" || key == "sample_tokens")
    return "every call of one compiled train step needs the same: ask about other shapes in a job of their own";
  return fmt::format("with framework jax there are: {}, {}", join(keys_of(Programs::both), ", "), join(keys_of(Programs::jax), ", "));
}

// Given by somebody, and not merely as what it is anyway.
bool is_said(const Job& job, const Setting& s) { return job.origin.contains(s.key) && (!s.print || s.print(job) != default_of(s)); }

}  // namespace

const char* to_string(Framework f) { return kFrameworks[static_cast<size_t>(f)]; }
const char* to_string(DeviceKind k) { return kDeviceKinds[static_cast<size_t>(k)]; }

std::string to_string(const JaxSettings& s) {
  std::string out = s.donate ? "state donated" : "state not donated";
  if (s.replicas > 1) out += fmt::format(", {} replicas", s.replicas);
  return out;
}

std::vector<Setting> jax_setting_entries() {
  constexpr Programs kJax = Programs::jax;
  const auto read_fraction = [](const Config& c, const char*, double) { return fraction(c); };
  const auto read_kind = [](const Config& c, const char* key, std::optional<DeviceKind>) {
    return c.find({key}) ? std::optional(one_of<DeviceKind>(kDeviceKinds, c, key)) : std::nullopt;
  };
  const auto print_kind = [](std::optional<DeviceKind> k) { return k ? nlohmann::ordered_json(to_string(*k)) : nlohmann::ordered_json(); };
  return {
      {field::word("framework", parse_framework, &Job::program, &ProgramSettings::framework), "pytorch|jax",
       "who runs the step: PyTorch op by op, or JAX as one program that XLA compiles (docs/xla.md)", Programs::both},
      {field::flag("donate", &Job::program, &ProgramSettings::jax, &JaxSettings::donate), "true|false",
       "jax: donate_argnums of the train state, so that it is updated in place (default false)", kJax},
      {field::size("replicas", &Job::program, &ProgramSettings::jax, &JaxSettings::replicas), "N",
       "jax: devices under pmap, each with a full copy and its own batch (default 1)", kJax},
      {{"global_batch", [](Job& j, const Config& c) { j.batch = c.size({"global_batch"}, 1); }},
       "N",
       "jax: samples of all replicas together, instead of batch; pmap needs it divisible by them",
       kJax},
      {field::member("device_kind", read_kind, print_kind, &Job::program, &ProgramSettings::jax, &JaxSettings::device_kind), "gpu|tpu",
       "jax: whose layouts and allocator (default: those of --gpu, else gpu)", kJax},
      {field::member("mem_fraction", read_fraction, field::kAsItIs, &Job::program, &ProgramSettings::jax, &JaxSettings::mem_fraction),
       "SHARE", "jax: XLA_PYTHON_CLIENT_MEM_FRACTION (default 0.75)", kJax},
      {field::flag("preallocate", &Job::program, &ProgramSettings::jax, &JaxSettings::preallocate), "true|false",
       "jax: XLA_PYTHON_CLIENT_PREALLOCATE (default true)", kJax},
      {field::flag("compile", &Job::compile), "",
       "torch.compile: not executed but enclosed, between the eager run and one that keeps only matrix products"},
      {field::text("alloc_conf", &Job::alloc_conf), "TEXT", "PYTORCH_CUDA_ALLOC_CONF, e.g. expandable_segments:True"},
      {field::version("torch", &Job::platform, &Platform::torch), "VERSION",
       "PyTorch's version, which decides about some workspaces (default 2.14)"},
      {field::version("transformers", &Job::platform, &Platform::transformers), "VERSION",
       "transformers' version: before 4.48 attention and its cache were other code (default 5.12)"},
  };
}

void check_framework(const Job& job, Problems& out) {
  for (const Setting& s : job_settings()) {
    if (!is_said(job, s)) continue;
    if (job.program.framework == Framework::pytorch && s.programs == Programs::jax)
      out.push_back({fmt::format("[job] {} is a setting of framework jax, and the framework is pytorch", s.key),
                     "add framework: jax, or leave it out"});
    if (job.program.framework == Framework::jax && s.programs == Programs::pytorch)
      out.push_back({fmt::format("[job] framework jax has no {}", s.key), instead_of(s)});
  }
  if (job.program.framework == Framework::pytorch) return;
  if (job.checkpointing.reentrant || !job.checkpointing.save.empty())
    out.push_back({"[job] framework jax: checkpointing is neither reentrant nor selective by op",
                   "jax.checkpoint of whole blocks or modules: true, every=K, modules=A+B"});
  if (job.attention == AttentionKernel::efficient || job.attention == AttentionKernel::math)
    out.push_back({fmt::format("[job] framework jax has no {} attention", to_string(job.attention)),
                   "auto and eager materialise the weights as flax does; flash is cuDNN's or the Pallas kernel"});
}

}  // namespace plimsoll
