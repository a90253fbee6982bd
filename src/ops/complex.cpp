#include "ops/complex.h"

#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

Tensor view_as_complex(const Tensor& x) {
  assert(x.dtype() == DType::float32 && x.size(-1) == 2);
  Dims sizes = x.sizes(), strides;
  sizes.erase(sizes.size() - 1);
  for (int d = 0; d < sizes.size(); ++d) strides.push_back(x.strides()[d] / 2);
  Op op(x.tape(), "view_as_complex", {&x});
  return op.finish(make_tensor(x.body().storage, sizes, strides, kComplex64),
                   [](Tensors& g, Needs) { return Tensors{view_as_real(contiguous(g[0]))}; });
}

Tensor view_as_real(const Tensor& x) {
  Dims sizes = x.sizes(), strides;
  for (int d = 0; d < sizes.size(); ++d) strides.push_back(checked_mul(x.strides()[d], 2));
  sizes.push_back(2);
  strides.push_back(1);
  Op op(x.tape(), "view_as_real", {&x});
  return op.finish(make_tensor(x.body().storage, sizes, strides, DType::float32),
                   [](Tensors& g, Needs) { return Tensors{view_as_complex(contiguous(g[0]))}; });
}

// saves the factor; backward: grad * factor.conj(), which is made first
Tensor complex_mul(const Tensor& x, const Tensor& factor) {
  Op op(x.tape(), "mul", {&x});
  Saved saved = op.save(factor);
  return op.finish(empty_like(x), [saved = std::move(saved)](Tensors& g, Needs) {
    const Tensor factor = saved.unpack();
    const Tensor conjugate = filled(factor.tape(), "clone", factor.sizes(), factor.dtype());
    Op op(factor.tape(), "mul", {});
    return Tensors{empty_like(g[0])};
  });
}

}  // namespace plimsoll
