// Which code computes the cross-entropy of a causal language model, and which of Liger's other kernels stand in for a model's
// own layers. Plain data; nn/loss_kernels.h acts on it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace plimsoll {

enum class LossKernel : uint8_t {
  model,           // the model's own: all logits, and in fp32 once more
  liger,           // Liger-Kernel's fused linear cross-entropy: logits and gradients chunk by chunk, in forward
  chunked,         // torchtune's LinearCrossEntropyLoss: logits chunk by chunk
  chunked_output,  // torchtune's CEWithChunkedOutputLoss: all logits, in fp32 chunk by chunk
  cut,             // Apple's cut-cross-entropy: no logits at all
};

// The layers that apply_liger_kernel_to_* replaces beside the loss.
struct LigerKernels {
  bool rope = false, rms_norm = false, swiglu = false;
  bool any() const { return rope || rms_norm || swiglu; }
};

struct LossSettings {
  LossKernel kernel = LossKernel::model;
  int64_t chunks = 8;  // num_output_chunks of torchtune's two
  LigerKernels liger;
};

const char* to_string(LossKernel k);
LossKernel parse_loss_kernel(const std::string& text);
// A list of names, or text like "rope+rms_norm", "all" or "none".
LigerKernels parse_liger_kernels(const nlohmann::json& value);

}  // namespace plimsoll
