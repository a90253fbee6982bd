// LoRA as the AI Toolkit (and kohya's scripts before it) computes it: beside the layer's own forward, in fp32, times a scale and a
// multiplier for each sample that are both tensors on the device.
#pragma once

#include "nn/adapter.h"

namespace plimsoll {

// The scale of a rank, a tensor so that the toolkit can change it while a network is compiled.
struct ToolkitScale : Module {
  explicit ToolkitScale(Module& layer);
  Tensor runtime_scale;  // _runtime_scale
};

// The layer's own result and the adapter's, times the samples' multipliers where there are any.
Tensor add_scaled(const Tensor& org_forwarded, const Tensor& lora_output, const Tensor& multiplier);

class AiToolkitLora : public Adapter {
 public:
  AiToolkitLora(DenseLayer& layer, const AdapterSettings& settings);
  Tensor operator()(const DenseLayer& layer, const Tensor& x) const override;

 private:
  Tensor call_forward(const Tensor& x) const;

  double dropout_;
  AdapterParameter lora_down_, lora_up_;
  ToolkitScale scale_;
};

}  // namespace plimsoll
