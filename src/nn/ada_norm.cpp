#include "nn/ada_norm.h"

#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

Tensor modulate(Tensor normed, const Tensor& scale, const Tensor& shift) {
  return scale_and_shift(std::move(normed), unsqueeze(scale, 1), unsqueeze(shift, 1));
}

Tensor scale_and_shift(Tensor normed, const Tensor& scale, const Tensor& shift) {
  {
    const Tensor factor = add_scalar(scale);
    normed = mul(normed, factor);
  }
  return add(normed, shift);
}

AdaLayerNormZero::AdaLayerNormZero(Module& parent, std::string_view name, int64_t width, int64_t n, bool pruned)
    : Module(parent, name),
      parts(n),
      linear(pruned ? nullptr : std::make_unique<Linear>(*this, "linear", width, checked_mul(parts, width))),
      norm(*this, "norm", width, false) {}

Tensors AdaLayerNormZero::operator()(const Tensor& x, const Tensor& given) const {
  Forward here(*this);
  const Tensor emb = linear ? (*linear)(silu(given)) : flatten(given, 1, 2);  // (N, parts C)
  const Tensors part = chunk(emb, parts, 1);
  if (parts == 9) {
    const Tensor normed = norm(x);
    const Tensor hidden = modulate(normed, part[1], part[0]);  // (N, T, C)
    return {hidden, part[2], part[3], part[4], part[5], modulate(normed, part[7], part[6]), part[8]};
  }
  Tensors out{modulate(norm(x), part[1], part[0])};
  out.insert(out.end(), part.begin() + 2, part.end());
  return out;
}

AdaLayerNormContinuous::AdaLayerNormContinuous(Module& parent, std::string_view name, int64_t width, int64_t embedding_width, bool pruned)
    : Module(parent, name),
      linear(pruned ? nullptr : std::make_unique<Linear>(*this, "linear", embedding_width, checked_mul(2, width))),
      norm(*this, "norm", width, false) {}

Tensor AdaLayerNormContinuous::operator()(const Tensor& x, const Tensor& given) const {
  Forward here(*this);
  if (!linear) {
    const Tensors part = chunk(to(flatten(given, 1, 2), x.dtype()), 2, 1);  // shift, scale: (N, C)
    return modulate(norm(x), part[1], part[0]);
  }
  const Tensor emb = (*linear)(to(silu(given), x.dtype()));  // (N, 2 C)
  const Tensors part = chunk(emb, 2, 1);                     // scale, shift: (N, C)
  return modulate(norm(x), part[0], part[1]);
}

}  // namespace plimsoll
