#include "optim/tensordot.h"

#include <algorithm>

#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "optim/foreach.h"

namespace plimsoll {

namespace {

bool holds(const Dims& dims, int d) {
  for (int i = 0; i < dims.size(); ++i)
    if (dims[i] == d) return true;
  return false;
}

Dims others(const Tensor& t, const Dims& dims) {
  Dims out;
  for (int d = 0; d < t.dim(); ++d)
    if (!holds(dims, d)) out.push_back(d);
  return out;
}

Dims joined(const Dims& a, const Dims& b) {
  Dims out = a;
  for (int i = 0; i < b.size(); ++i) out.push_back(b[i]);
  return out;
}

Dims sizes_at(const Tensor& t, const Dims& dims) {
  Dims out;
  for (int i = 0; i < dims.size(); ++i) out.push_back(t.size(static_cast<int>(dims[i])));
  return out;
}

Tensor dot(const Tensor& a, const Tensor& b) {
  if (a.is_contiguous() && b.is_contiguous()) return temporary("dot", Dims{}, a.dtype(), a.tape());
  const Tensor product = temporary("mul", a.sizes(), a.dtype(), a.tape());
  return sum(product);
}

}  // namespace

// A dimension of size 1 is summed away first, into a copy; what contracts to one number is a dot product.
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b) {
  Tensor left = a, right = b;
  for (int i = 0; i < dims_a.size(); ++i) {
    const int da = static_cast<int>(dims_a[i]), db = static_cast<int>(dims_b[i]);
    if (b.size(db) == 1) {
      left = sum(left, {da}, true);
    } else if (a.size(da) == 1) {
      right = sum(right, {db}, true);
    }
  }
  const Dims kept_a = others(a, dims_a), kept_b = others(b, dims_b), result = joined(sizes_at(a, kept_a), sizes_at(b, kept_b));
  const int64_t rows = numel(sizes_at(a, kept_a)), columns = numel(sizes_at(b, kept_b));
  left = permute(left, joined(kept_a, dims_a));
  right = permute(right, joined(dims_b, kept_b));
  if (rows == 1 && columns == 1) return reshape(dot(left, right), result);
  left = reshape(left, {rows, left.numel() / rows});
  right = reshape(right, {left.size(1), columns});
  return reshape(mm(left, right), result);
}

Tensor outer_product(const Tensor& t, int dim) {
  const Dims rest = others(t, {dim});
  return tensordot(t, t, rest, rest);
}

Tensor rolled(const Tensor& t) {
  Dims order;
  for (int d = 1; d < t.dim(); ++d) order.push_back(d);
  order.push_back(0);
  return permute(t, order);
}

}  // namespace plimsoll
