// LoRA as the AI Toolkit (and kohya's scripts before it) computes it: beside the layer's own forward, in fp32, times a scale and a
// multiplier for each sample that are both tensors on the device.
#pragma once

#include "nn/adapter.h"

namespace plimsoll {

class AiToolkitLora : public Adapter {
 public:
  AiToolkitLora(DenseLayer& layer, const AdapterSettings& settings);
  Tensor operator()(const DenseLayer& layer, const Tensor& x) const override;

 private:
  struct Scale : Module {
    explicit Scale(Module& layer);
    Tensor runtime_scale;  // _runtime_scale
  };
  Tensor call_forward(const Tensor& x) const;

  double dropout_;
  AdapterParameter lora_down_, lora_up_;
  Scale scale_;
};

}  // namespace plimsoll
