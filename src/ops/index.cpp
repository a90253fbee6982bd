#include "ops/index.h"

namespace plimsoll {

// saves the indices; backward adds the gradient into zeros of the full size, in place
Tensor index(const Tensor& x, const Tensor& indices) {
  Op op(x.tape(), "index", {&x});
  Saved saved = op.save(indices);
  Dims sizes = indices.sizes();
  for (int i = 1; i < x.dim(); ++i) sizes.push_back(x.size(i));
  return op.finish(empty(x.tape(), sizes, x.dtype()), [saved = std::move(saved), before = x.sizes()](Tensors& g, Needs) {
    const Tensor indices = saved.unpack();
    Op op(indices.tape(), "new_zeros", {});
    return Tensors{empty(indices.tape(), before, g[0].dtype())};
  });
}

// saves nothing; backward (CopySlices) copies the gradient whole, then its slice, which zeros replace
Tensor zero_slice_(const Tensor& x, int64_t start, int64_t end) {
  Op op(x.tape(), "zero_", {&x});
  return op.finish(detach(x), [sizes = x.sizes(), strides = x.strides(), length = end - start](Tensors& g, Needs) {
    Tape& tape = g[0].tape();
    Dims part = sizes;
    part[0] = length;
    Op whole(tape, "new_empty_strided", {});
    const Tensor out = empty_strided(tape, sizes, strides, g[0].dtype());
    Op copy(tape, "clone", {});
    const Tensor slice = empty(tape, part, g[0].dtype());
    Op clear(tape, "zeros_like", {});
    const Tensor zeros = empty_like(slice);
    return Tensors{out};
  });
}

}  // namespace plimsoll
