#include "nn/diffusers_rotary.h"

#include <fmt/format.h>

#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// Each frequency twice in a row, in fp32. (S, dim / 2) -> (S, dim)
Tensor twice(Tensor x) {
  x = repeat_interleave(x, 2, 1);
  return to(x, DType::float32);
}

// 1 / theta ** (arange(0, dim, 2) / dim) / linear_factor
Tensor frequencies(Tape& tape, int64_t dim, DType dtype) {
  Tensor f = arange(tape, dim / 2, dtype);
  f = nondiff("div", f, dtype);
  f = nondiff("pow", f, dtype);
  f = nondiff("mul", nondiff("reciprocal", f, dtype), dtype);
  f = nondiff("div", f, dtype);
  return f;
}

}  // namespace

void require_rotary_axes(const Config& config, const char* key, const std::vector<int64_t>& axes, const char* head_key, int64_t head_dim) {
  int64_t sum = 0;
  for (int64_t dim : axes) {
    if (dim % 2 != 0)
      throw Error(fmt::format("[{}] {} has {}, an odd number", config.source(), key, dim), "dims are turned in pairs: give even numbers");
    sum = checked_add(sum, dim);
  }
  if (sum != head_dim)
    throw Error(fmt::format("[{}] {} add up to {}, but {} is {}", config.source(), key, sum, head_key, head_dim),
                fmt::format("make {} add up to {}", key, head_dim));
}

CosSin get_1d_rotary_pos_embed(int64_t dim, const Tensor& pos, DType dtype) {
  Tensor freqs = frequencies(pos.tape(), dim, dtype);  // (dim / 2)
  freqs = mul(view(pos, {-1, 1}), freqs);              // (S, dim / 2)
  const Tensor cosine = twice(cos(freqs));
  return {cosine, twice(sin(freqs))};
}

CosSin FluxPosEmbed::operator()(const Tensor& ids) const {
  Forward here(*this);
  Tensors cos_out, sin_out;
  const Tensor pos = to(ids, DType::float32);  // (S, axes)
  for (size_t i = 0; i < axes_dim.size(); ++i) {
    const CosSin tables = get_1d_rotary_pos_embed(axes_dim[i], select(pos, 1, static_cast<int64_t>(i)), DType::float64);
    cos_out.push_back(tables.cos);
    sin_out.push_back(tables.sin);
  }
  const Tensor cosine = cat(cos_out, -1);
  return {cosine, cat(sin_out, -1)};
}

Tensor apply_rotary_emb(const Tensor& x, const CosSin& tables) {
  const Tensor cosine = unsqueeze(unsqueeze(tables.cos, 0), 2), sine = unsqueeze(unsqueeze(tables.sin, 0), 2);  // (1, S, 1, D)
  Dims pairs = x.sizes();
  pairs[-1] = x.size(-1) / 2;
  pairs.push_back(2);
  const Tensors part = unbind(reshape(x, pairs), -1);  // real, imaginary: (B, S, H, D / 2)
  Tensor rotated;
  {
    const Tensor minus = neg(part[1]);
    rotated = flatten(stack({minus, part[0]}, -1), 3);  // (B, S, H, D)
  }
  Tensor out;
  {
    Tensor first = to(x, DType::float32);
    first = mul(first, cosine);
    Tensor second = to(rotated, DType::float32);
    second = mul(second, sine);
    out = add(first, second);
  }
  return to(out, x.dtype());
}

}  // namespace plimsoll
