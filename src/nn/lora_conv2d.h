// LoRA on a convolution: one like it with r channels, then a 1 x 1 one to the layer's own, computed as PEFT does or as the AI Toolkit
// (and kohya's scripts) do.
#pragma once

#include "nn/ai_toolkit_lora.h"
#include "nn/vision.h"

namespace plimsoll {

class LoraConv2d {
 public:
  LoraConv2d(Conv2d& layer, const AdapterSettings& settings);
  Tensor operator()(const Conv2d& layer, const Tensor& x) const;

 private:
  Tensor on_peft(const Conv2d& layer, const Tensor& x) const;
  Tensor on_toolkit(const Conv2d& layer, const Tensor& x) const;
  Tensor down(const Conv2d& layer, const Tensor& x) const;  // (N, r, h, w)
  Tensor up(const Conv2d& layer, const Tensor& x) const;    // (N, out, h, w)

  double dropout_;
  AdapterParameter down_, up_;
  std::unique_ptr<ToolkitScale> scale_;  // of the toolkit's
};

}  // namespace plimsoll
