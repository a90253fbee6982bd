#include "tensor/iterator.h"

namespace plimsoll {

namespace {

// Strides of `t` seen in `shape`: 0 where it is broadcast.
Dims expanded_strides(const Tensor& t, const Dims& shape) {
  Dims out = Dims::filled(shape.size(), 0);
  const int offset = shape.size() - t.dim();
  for (int i = 0; i < t.dim(); ++i) out[offset + i] = t.size(i) == 1 && shape[offset + i] != 1 ? 0 : t.strides()[i] * size_of(t.dtype());
  return out;
}

}  // namespace

Dims iterator_strides(const Dims& shape, std::initializer_list<const Tensor*> inputs) {
  bool same_shape = true, all_contiguous = true, same_strides = true, all_channels_last = true;
  const Tensor* first = nullptr;
  Dims strides[3];
  int count = 0;
  for (const Tensor* t : inputs) {
    if (!t || !t->defined()) continue;
    same_shape &= t->sizes() == shape;
    all_contiguous &= t->is_contiguous();
    all_channels_last &= is_channels_last(t->sizes(), t->strides());
    same_strides &= !first || first->strides() == t->strides();
    if (!first) first = t;
    assert(count < 3);
    strides[count++] = expanded_strides(*t, shape);
  }
  if (!first) return contiguous_strides(shape);
  if (same_shape) {
    if (all_contiguous) return contiguous_strides(shape);
    if (all_channels_last) return channels_last_strides(shape);
    if (same_strides && is_non_overlapping_and_dense(shape, first->strides())) return first->strides();
  }
  return ordered_strides(shape, [&](int d0, int d1) {
    for (int k = 0; k < count; ++k) {
      const int64_t s0 = strides[k][d0], s1 = strides[k][d1];
      if (s0 == 0 || s1 == 0) continue;
      if (s0 != s1) return s0 < s1 ? -1 : 1;
      if (shape[d0] > shape[d1]) return 1;
    }
    return 0;
  });
}

}  // namespace plimsoll
