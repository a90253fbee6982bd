#include "job/lint.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace plimsoll {

namespace {

// "8.9"; none for AMD's targets and for what is no capability.
std::optional<double> capability_of(const std::string& target) {
  double value = 0;
  const auto [end, error] = std::from_chars(target.data(), target.data() + target.size(), value);
  if (target.empty() || error != std::errc() || end != target.data() + target.size()) return std::nullopt;
  return value;
}

void add(Job& job, Effect effect, const char* key, const std::string& value, const std::string& what, const std::string& why) {
  const auto it = job.origin.find(key);
  job.findings.push_back({effect, fmt::format("{} = {}", key, value), it == job.origin.end() ? "" : it->second, what, why});
}

bool is_bf16(Precision p) { return p == Precision::amp || p == Precision::bf16; }

// Tensor cores for bf16 came with capability 8.0; before, PyTorch emulates it, and libraries ask is_bf16_supported.
void lint_device(Job& job, const GpuFacts& gpu) {
  const std::optional<double> capability = capability_of(gpu.target);
  if (!capability || *capability >= 8.0) return;
  const std::string why = fmt::format("{} has compute capability {}", gpu.name, gpu.target);
  if (is_bf16(job.precision))
    add(job, Effect::refused, "precision", to_string(job.precision),
        "the device has no bf16: trainers refuse it, PyTorch emulates it slowly; fp16 needs as much memory", why + ", bf16 needs 8.0");
  if (job.attention == AttentionKernel::flash_attention_2)
    add(job, Effect::refused, "attention", to_string(job.attention), "FlashAttention-2 does not run on this device",
        why + ", it needs 8.0");
  if (job.attention == AttentionKernel::flash)
    add(job, Effect::other, "attention", to_string(job.attention), "PyTorch takes the memory-efficient kernel on this device",
        why + ", flash needs 8.0");
}

}  // namespace

void lint(Job& job, const GpuFacts& gpu) {
  if (job.captured) return;  // its script decides, and the settings say nothing about it
  if (job.eval_batch > job.batch)
    add(job, Effect::note, "eval_batch", std::to_string(job.eval_batch),
        fmt::format("evaluation runs larger batches than training ({}): without gradients, but all logits of a batch are there at once",
                    job.batch),
        "memory may run out in the first evaluation, after training went well");
  lint_device(job, gpu);
}

}  // namespace plimsoll
