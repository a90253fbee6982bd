#include "nn/layers.h"

#include "ops/embedding.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

Linear::Linear(Module& parent, std::string_view name, int64_t in, int64_t out, bool with_bias) : Module(parent, name) {
  weight = parameter("weight", {out, in});
  if (with_bias) bias = parameter("bias", {out});
}

Linear::Linear(Module& parent, std::string_view name, const Tensor& tied_weight, bool with_bias)
    : Module(parent, name), weight(tied_weight) {
  tie(*tied_weight.parameter());
  if (with_bias) bias = parameter("bias", {weight.size(0)});
}

Tensor Linear::operator()(const Tensor& x) const {
  Forward here(*this);
  return linear(x, weight, bias);
}

Conv1D::Conv1D(Module& parent, std::string_view name, int64_t out, int64_t in) : Module(parent, name) {
  weight = parameter("weight", {in, out});
  bias = parameter("bias", {out});
}

Tensor Conv1D::operator()(const Tensor& x) const {
  Forward here(*this);
  Dims shape = x.sizes();
  shape[-1] = weight.size(1);
  const Tensor y = addmm(bias, view(x, {-1, x.size(-1)}), weight);
  return view(y, shape);
}

Embedding::Embedding(Module& parent, std::string_view name, int64_t rows, int64_t width) : Module(parent, name) {
  weight = parameter("weight", {rows, width});
}

Embedding::Embedding(Module& parent, std::string_view name, const Tensor& tied_weight) : Module(parent, name), weight(tied_weight) {
  tie(*tied_weight.parameter());
}

Tensor Embedding::operator()(const Tensor& ids) const {
  Forward here(*this);
  return embedding(weight, ids);
}

LayerNorm::LayerNorm(Module& parent, std::string_view name, int64_t width, bool affine, bool with_bias) : Module(parent, name) {
  if (!affine) return;
  weight = parameter("weight", {width});
  if (with_bias) bias = parameter("bias", {width});
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  Forward here(*this);
  return layer_norm(x, 1, weight, bias);
}

RMSNorm::RMSNorm(Module& parent, std::string_view name, int64_t width) : Module(parent, name) { weight = parameter("weight", {width}); }

Tensor RMSNorm::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor hidden = to(x, DType::float32);
  const Tensor variance = mean(pow(hidden, 2), {-1}, true);
  {
    const Tensor scale = rsqrt(add_scalar(variance));
    hidden = mul(hidden, scale);
  }
  return mul(weight, to(hidden, x.dtype()));
}

Tensor Dropout::operator()(const Tensor& x) const {
  Forward here(*this);
  return dropout(x, p);
}

}  // namespace plimsoll
