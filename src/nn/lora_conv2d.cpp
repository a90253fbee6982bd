#include "nn/lora_conv2d.h"

#include "ops/conv.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

const AdapterSettings& checked(const Conv2d& layer, const AdapterSettings& s) {
  const auto refuse = [&](const std::string& what) {
    throw Error(std::string("[") + to_string(s.kind) + "] " + layer.path() + " is " + what, "take it out of target_modules");
  };
  if (s.kind != AdapterKind::lora || s.use_dora) refuse("a convolution, which only plain LoRA supports here");
  if (layer.options.dilation.h != 1 || layer.options.dilation.w != 1)
    refuse("a dilated convolution, of which LoRA's would give another size");
  if (s.r % layer.options.groups != 0)
    refuse("a convolution of " + std::to_string(layer.options.groups) + " groups, which do not divide r");
  return s;
}

DType dtype_of(const Conv2d& layer, const AdapterSettings& s) { return s.ai_toolkit ? DType::float32 : adapter_dtype(s, layer.weight); }

int64_t in_channels(const Conv2d& layer) { return layer.weight.size(1) * layer.options.groups; }

}  // namespace

LoraConv2d::LoraConv2d(Conv2d& layer, const AdapterSettings& s)
    : dropout_(checked(layer, s).dropout),
      down_(layer, s.ai_toolkit ? "lora_down" : "lora_A.default", {s.r, in_channels(layer), layer.options.kernel.h, layer.options.kernel.w},
            dtype_of(layer, s)),
      up_(layer, s.ai_toolkit ? "lora_up" : "lora_B.default", {layer.weight.size(0), s.r / layer.options.groups, 1, 1}, dtype_of(layer, s)),
      scale_(s.ai_toolkit ? std::make_unique<ToolkitScale>(layer) : nullptr) {}

Tensor LoraConv2d::down(const Conv2d& layer, const Tensor& x) const {
  Forward here(down_);
  const Conv2dOptions& o = layer.options;
  return conv2d(x, down_.weight, {}, {o.stride.h, o.stride.w, o.padding.h, o.padding.w, 1, 1, 1});
}

Tensor LoraConv2d::up(const Conv2d& layer, const Tensor& x) const {
  Forward here(up_);
  return conv2d(x, up_.weight, {}, {1, 1, 0, 0, 1, 1, layer.options.groups});
}

// peft 0.20, tuners/lora/layer.py, _ConvNd.forward
Tensor LoraConv2d::on_peft(const Conv2d& layer, const Tensor& x) const {
  Tensor result = layer.base(x);  // (N, out, h, w)
  const DType dtype = result.dtype();
  const Tensor input = to(x, down_.weight.dtype());
  {
    Tensor delta = dropout(input, dropout_);
    delta = down(layer, delta);
    delta = up(layer, delta);
    delta = mul_scalar(delta);
    result = add(result, delta);
  }
  return to(result, dtype);
}

// toolkit/network_mixins.py, ToolkitModuleMixin.forward
Tensor LoraConv2d::on_toolkit(const Conv2d& layer, const Tensor& x) const {
  const Tensor org_forwarded = layer.base(x);
  const Tensor lora_input = to(x, DType::float32);
  Tensor lx = down(layer, lora_input);
  lx = dropout(lx, dropout_);
  lx = up(layer, lx);
  lx = mul(lx, scale_->runtime_scale);
  return add_scaled(org_forwarded, lx, layer.build().adapter_multiplier);
}

Tensor LoraConv2d::operator()(const Conv2d& layer, const Tensor& x) const { return scale_ ? on_toolkit(layer, x) : on_peft(layer, x); }

}  // namespace plimsoll
