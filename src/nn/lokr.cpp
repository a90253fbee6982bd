#include "nn/lokr.h"

#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

std::pair<int64_t, int64_t> factorization(int64_t dimension, int64_t factor) {
  if (factor > 0 && dimension % factor == 0) return {factor, dimension / factor};
  if (factor == -1) factor = dimension;
  int64_t m = 1, n = dimension;
  const int64_t length = m + n;
  while (m < n) {
    int64_t next = m + 1;
    while (dimension % next != 0) ++next;
    if (next + dimension / next > length || next > factor) break;
    m = next;
    n = dimension / next;
  }
  return {std::min(m, n), std::max(m, n)};
}

Lokr::Factor::Factor(DenseLayer& layer, const std::string& name, int64_t rows, int64_t columns, std::optional<int64_t> rank, DType dtype)
    : first(layer, name + (rank ? "_a.default" : ".default"), {rows, rank.value_or(columns)}, dtype) {
  if (rank) second = std::make_unique<AdapterParameter>(layer, name + "_b.default", Dims{*rank, columns}, dtype);
}

Tensor Lokr::Factor::operator()() const { return second ? matmul(first.weight, second->weight) : first.weight; }

// LoKrLayer.update_layer: a factor is split in two when the rank is below half its longer side.
Lokr::Lokr(DenseLayer& layer, const AdapterSettings& s) {
  const auto [out_l, out_k] = factorization(layer.out, s.decompose_factor);
  const auto [in_m, in_n] = factorization(layer.in, s.decompose_factor);
  const DType dtype = adapter_dtype(s, layer.weight);
  const bool split1 = s.decompose_both && 2 * s.r < std::max(out_l, in_m), split2 = 2 * s.r < std::max(out_k, in_n);
  w1_.emplace(layer, "lokr_w1", out_l, in_m, split1 ? std::optional(s.r) : std::nullopt, dtype);
  w2_.emplace(layer, "lokr_w2", out_k, in_n, split2 ? std::optional(s.r) : std::nullopt, dtype);
}

// get_delta_weight and make_kron: torch.kron is a product of views, (a, 1, c, 1) x (1, b, 1, d).
Tensor Lokr::delta_weight(const DenseLayer& layer) const {
  const Tensor w1 = (*w1_)(), w2 = (*w2_)();
  Tensor product;
  {
    const Tensor left = view(w1, {w1.size(0), 1, w1.size(1), 1}), right = view(w2, {1, w2.size(0), 1, w2.size(1)});
    const Tensor blocks = mul(left, right);
    product = mul_scalar(view(blocks, {layer.out, layer.in}));
  }
  return view(product, {layer.out, layer.in});
}

// Linear._get_delta_activations
Tensor Lokr::delta(const DenseLayer& layer, const Tensor& x) const {
  const Tensor weight = delta_weight(layer);
  const Tensor input = to(x, weight.dtype());
  return linear(input, weight);
}

// peft 0.20, tuners/lokr/layer.py, LoKrLayer.forward
Tensor Lokr::operator()(const DenseLayer& layer, const Tensor& x) const {
  Tensor result = layer.base(x);  // (..., out)
  {
    const Tensor change = delta(layer, x);
    result = add(result, change);
  }
  return to(result, x.dtype());
}

}  // namespace plimsoll
