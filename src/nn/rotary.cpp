#include "nn/rotary.h"

#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

RotaryEmbedding::RotaryEmbedding(Module& parent, std::string_view name, int64_t dim) : Module(parent, name) {
  inv_freq = buffer("inv_freq", {(dim + 1) / 2});
  buffer("original_inv_freq", {(dim + 1) / 2});
}

CosSin RotaryEmbedding::operator()(const Tensor& x, const Tensor& position_ids) const {
  Forward here(*this);
  GradGuard no_grad(tape(), false);
  const Tensor frequencies = expand(view(inv_freq, {1, -1, 1}), {position_ids.size(0), -1, 1});
  const Tensor positions = to(unsqueeze(position_ids, 1), DType::float32);
  AutocastGuard fp32(tape(), std::nullopt);
  const Tensor freqs = transpose(matmul(frequencies, positions), 1, 2);  // (1, T, D/2)
  const Tensor emb = cat({freqs, freqs}, -1);                            // (1, T, D)
  CosSin tables;
  tables.cos = mul_scalar(cos(emb));
  tables.sin = mul_scalar(sin(emb));
  return {to(tables.cos, x.dtype()), to(tables.sin, x.dtype())};
}

Tensor rotate_half(const Tensor& x) {
  const int64_t half = x.size(-1) / 2;
  const Tensor x1 = slice(x, -1, 0, half), x2 = slice(x, -1, half, x.size(-1));
  const Tensor minus = neg(x2);
  return cat({minus, x1}, -1);
}

namespace {
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor straight = mul(x, cos);
  const Tensor turned = mul(rotate_half(x), sin);
  return add(straight, turned);
}
}  // namespace

std::pair<Tensor, Tensor> apply_rotary_pos_emb(const Tensor& q, const Tensor& k, const CosSin& tables) {
  const Tensor cos = unsqueeze(tables.cos, 1), sin = unsqueeze(tables.sin, 1);
  Tensor q_embed = rotate(q, cos, sin);
  Tensor k_embed = rotate(k, cos, sin);
  return {q_embed, k_embed};
}

}  // namespace plimsoll
