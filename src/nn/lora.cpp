#include "nn/lora.h"

#include "nn/quantized_linear.h"
#include "ops/embedding.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

Lora::Lora(DenseLayer& layer, const AdapterSettings& s)
    : dropout_(s.dropout),
      lora_A_(layer, "lora_A.default", {s.r, layer.in}, adapter_dtype(s, layer.weight)),
      lora_B_(layer, "lora_B.default", {layer.out, s.r}, adapter_dtype(s, layer.weight)) {}

Tensor Lora::project(const AdapterParameter& p, const Tensor& x) {
  const auto run = [&p](const Tensors& in) -> Tensors {
    Forward here(p);
    return {functional_linear(p.build(), in[0], p.weight)};
  };
  return is_wrapped(p) ? call_with_hooks(p, run, {x})[0] : run({x})[0];
}

Tensor Lora::delta(const Tensor& x) const {
  Tensor hidden = dropout(x, dropout_);  // (..., in)
  hidden = project(lora_A_, hidden);     // (..., r)
  hidden = project(lora_B_, hidden);     // (..., out)
  return mul_scalar(hidden);
}

Tensor Lora::add_delta(const DenseLayer&, const Tensor& x, const Tensor& result) const {
  const Tensor difference = delta(x);
  return add(result, difference);
}

// peft 0.20, tuners/lora/layer.py, Linear.forward: the input is cast to the adapter's type (and that copy is what A keeps for
// its gradient), the sum back to the type of the base's result.
Tensor Lora::on_plain(const DenseLayer& layer, const Tensor& x) const {
  Tensor result = layer.base(x);  // (..., out)
  const DType dtype = result.dtype();
  const Tensor input = to(x, lora_A_.weight.dtype());
  result = add_delta(layer, input, result);
  return to(result, dtype);
}

// peft 0.20, tuners/lora/bnb.py, Linear4bit.forward and Linear8bitLt.forward, gptq.py: under autocast nothing is cast by hand; the
// result of a 4-bit base is cloned first.
Tensor Lora::on_quantized(const DenseLayer& layer, const Tensor& x) const {
  Tensor result = layer.base(x);  // (..., out)
  if (layer.quantized->is_cloned()) result = clone(result);
  const DType dtype = result.dtype();
  const bool converts = !x.tape().autocast;
  const Tensor input = converts ? to(x, lora_A_.weight.dtype()) : x;
  result = add_converted(layer, input, result, converts ? std::optional(dtype) : std::nullopt);
  return result;
}

Tensor Lora::add_converted(const DenseLayer&, const Tensor& x, const Tensor& result, std::optional<DType> dtype) const {
  Tensor output = delta(x);
  if (dtype) output = to(output, *dtype);
  return add(result, output);
}

Tensor Lora::operator()(const DenseLayer& layer, const Tensor& x) const {
  return layer.quantized && layer.quantized->has_own_adapter() ? on_quantized(layer, x) : on_plain(layer, x);
}

Dora::Dora(DenseLayer& layer, const AdapterSettings& s)
    : Lora(layer, s), lora_magnitude_vector_(layer, "lora_magnitude_vector.default", {layer.out}, adapter_dtype(s, layer.weight)) {}

// get_lora_weight: B(A(identity)) transposed; its graph, which holds the identity, lives as long as it does.
Tensor Dora::lora_weight() const {
  const int64_t in = lora_A_.weight.size(1);
  const Tensor identity = filled(lora_A_.weight.tape(), "eye", {in, in}, lora_A_.weight.dtype());
  Tensor hidden = project(lora_A_, identity);  // (in, r)
  return t(project(lora_B_, hidden));          // (out, in)
}

// get_weight_norm: the length of every row of weight + scaling * lora_weight. No gradient.
Tensor Dora::weight_norm(const Tensor& weight, const Tensor& lora_weight) const {
  Tensor sum;  // (out, in)
  {
    const Tensor scaled = mul_scalar(detach(lora_weight));
    sum = add(weight, scaled);
  }
  return to(vector_norm(sum, {1}), sum.dtype());  // (out, 1)
}

// peft 0.20, tuners/lora/dora.py, DoraLinearLayer.forward. With dropout the base product is computed again from the dropped
// input, so that the weight's copy in the adapter's type is kept for backward.
Tensor Dora::dora(const DenseLayer& layer, const Tensor& x, const Tensor& base_result) const {
  Forward here(lora_magnitude_vector_);
  const Tensor lora = to(lora_weight(), x.dtype());  // (out, in)
  const Tensor unpacked = layer.unpacked_weight();   // as stored
  const Tensor weight = to(unpacked, x.dtype());
  const Tensor upright = layer.fan_in_fan_out ? t(weight) : weight;  // (out, in)
  const Tensor norm = view(weight_norm(upright, lora), {layer.out});
  const Tensor scale = view(div(lora_magnitude_vector_.weight, norm), {1, -1});  // (1, out)
  Tensor lora_result = project(lora_A_, x);
  lora_result = project(lora_B_, lora_result);  // (..., out)
  Tensor base = base_result;
  if (!base) {
    base = linear(x, upright);
  } else if (layer.bias) {
    base = sub(base, layer.bias);
  }
  Tensor direction;
  {
    const Tensor less_one = sub_scalar(scale);
    direction = mul(less_one, base);
  }
  Tensor change = mul(scale, lora_result);
  change = mul_scalar(change);
  return add(direction, change);
}

// DoraLinearVariant.forward (tuners/lora/variants.py)
Tensor Dora::add_delta(const DenseLayer& layer, const Tensor& x, const Tensor& result) const {
  const Tensor dropped = dropout(x, dropout_);
  const Tensor extra = dora(layer, dropped, dropout_ > 0 ? Tensor() : result);
  return add(result, extra);
}

Tensor Dora::add_converted(const DenseLayer& layer, const Tensor& x, const Tensor& result, std::optional<DType> dtype) const {
  const Tensor sum = add_delta(layer, x, result);
  return dtype ? to(sum, *dtype) : sum;
}

LoraEmbedding::LoraEmbedding(Embedding& layer, const AdapterSettings& s)
    : lora_embedding_A_(layer, "lora_embedding_A.default", {s.r, layer.weight.size(0)}, adapter_dtype(s, layer.weight)),
      lora_embedding_B_(layer, "lora_embedding_B.default", {layer.weight.size(1), s.r}, adapter_dtype(s, layer.weight)) {}

// peft 0.20, tuners/lora/layer.py, Embedding.forward: the sum takes the place of the embedding's result.
Tensor LoraEmbedding::operator()(const Embedding& layer, Tensor result, const Tensor& ids) const {
  const DType dtype = result.dtype();
  const Tensor after_A = embedding(t(lora_embedding_A_.weight), ids);  // (..., r)
  Tensor output = matmul(after_A, t(lora_embedding_B_.weight));        // (..., width)
  output = mul_scalar(output);
  output = layer.scaled(output, output.dtype());
  result = add(result, output);
  return to(result, dtype);
}

}  // namespace plimsoll
