#include "ops/copy_slices.h"

#include "ops/reshape.h"

namespace plimsoll {

namespace {

// `write` makes the gradient of the part from a copy of it; the result is written back into the copy of the whole.
template <class F>
Tensor copy_slices(const Tensor& grad, const Dims& sizes, const Dims& part_sizes, F write) {
  Tape& tape = grad.tape();
  Tensor whole;
  {
    Op op(tape, "new_empty_strided", {});
    whole = empty(tape, sizes, grad.dtype());
  }
  Tensor part;
  {
    Op op(tape, "clone", {});
    part = empty(tape, part_sizes, grad.dtype());
  }
  const Tensor written = write(part);
  return whole;
}

// How a view is found again after the tensor under it was written to: by its strides, whose backward writes into zeros. Under
// the recorder's dispatch mode the view itself is replayed, which costs nothing.
Tensor view_again(const Tensor& x) {
  if (x.tape().dialect.recorder) return x;
  Op op(x.tape(), "as_strided", {&x});
  return op.finish(detach(x), [sizes = x.sizes()](Tensors& g, Needs) {
    Op zeros(g[0].tape(), "new_zeros", {});
    return Tensors{empty(g[0].tape(), sizes, g[0].dtype())};
  });
}

}  // namespace

// saves nothing; the part's gradient is zeros
Tensor zero_slice_(const Tensor& x, int64_t start, int64_t end) {
  Op op(x.tape(), "zero_", {&x});
  return op.finish(detach(x), [sizes = x.sizes(), length = end - start](Tensors& g, Needs) {
    Dims part = sizes;
    part[0] = length;
    return Tensors{copy_slices(g[0], sizes, part, [](const Tensor& grad) {
      Op zeros(grad.tape(), "zeros_like", {});
      return empty_like(grad);
    })};
  });
}

// saves nothing; the part's gradient goes to the value, in its type, and zeros to what was there before
Tensor copy_into_slice_(const Tensor& out, const Tensor& value) {
  Op op(out.tape(), "copy_", {&out, &value});
  return op.finish(detach(out), [sizes = out.sizes(), part = value.sizes(), dtype = value.dtype()](Tensors& g, Needs needs) {
    Tensors grads(2);
    const Tensor whole = copy_slices(g[0], sizes, part, [&](const Tensor& grad) {
      Tensor zeros;
      if (needs[0]) {
        Op op(grad.tape(), "zeros_like", {});
        zeros = empty_like(grad);
      }
      if (needs[1]) grads[1] = to(grad, dtype);
      return zeros;
    });
    if (needs[0]) grads[0] = whole;
    return grads;
  });
}

// saves the result
Tensor relu_on_view_(const Tensor& x) {
  Op op(x.tape(), "relu_", {&x});
  Tensor y = detach(x);
  Saved result = op.save(y);
  y = op.finish(y, [result = std::move(result)](Tensors& g, Needs) {
    const Tensor kept = result.unpack();
    return Tensors{copy_slices(g[0], kept.sizes(), kept.sizes(), [](const Tensor& grad) {
      Op threshold(grad.tape(), "threshold_backward", {});
      return empty_like(grad);
    })};
  });
  return view_again(y);
}

}  // namespace plimsoll
