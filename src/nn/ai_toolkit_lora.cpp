#include "nn/ai_toolkit_lora.h"

#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

Tensor project(const AdapterParameter& p, const Tensor& x) {
  Forward here(p);
  return linear(x, p.weight);
}

// toolkit/network_mixins.py, broadcast_and_multiply
Tensor broadcast_and_multiply(const Tensor& x, Tensor multiplier) {
  while (multiplier.dim() < x.dim()) multiplier = unsqueeze(multiplier, -1);
  return mul(x, multiplier);
}

}  // namespace

ToolkitScale::ToolkitScale(Module& layer) : Module(layer, "lora"), runtime_scale(buffer("_runtime_scale", {})) {
  buffer("alpha", {}, DType::int64);
}

// Rows of several tokens a sample (a mixture of experts) get their samples' multipliers by turns.
Tensor add_scaled(const Tensor& org_forwarded, const Tensor& lora_output, const Tensor& by_sample) {
  Tensor multiplier = by_sample;
  if (multiplier && multiplier.size(0) != lora_output.size(0))
    multiplier = repeat_interleave(multiplier, lora_output.size(0) / multiplier.size(0), 0);
  Tensor scaled = multiplier ? broadcast_and_multiply(lora_output, multiplier) : mul_scalar(lora_output);
  scaled = to(scaled, org_forwarded.dtype());
  return add(org_forwarded, scaled);
}

AiToolkitLora::AiToolkitLora(DenseLayer& layer, const AdapterSettings& s)
    : dropout_(s.dropout),
      lora_down_(layer, "lora_down", {s.r, layer.in}, DType::float32),
      lora_up_(layer, "lora_up", {layer.out, s.r}, DType::float32),
      scale_(layer) {}

// toolkit/network_mixins.py, ToolkitModuleMixin._call_forward
Tensor AiToolkitLora::call_forward(const Tensor& x) const {
  Tensor lx = project(lora_down_, x);  // (..., r)
  lx = dropout(lx, dropout_);
  lx = project(lora_up_, lx);  // (..., out)
  return mul(lx, scale_.runtime_scale);
}

// ToolkitModuleMixin.forward
Tensor AiToolkitLora::operator()(const DenseLayer& layer, const Tensor& x) const {
  const Tensor org_forwarded = layer.base(x);  // (..., out)
  const Tensor lora_input = to(x, DType::float32);
  const Tensor lora_output = call_forward(lora_input);
  return add_scaled(org_forwarded, lora_output, layer.build().adapter_multiplier);
}

}  // namespace plimsoll
