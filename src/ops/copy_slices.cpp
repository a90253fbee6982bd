#include "ops/copy_slices.h"

namespace plimsoll {

namespace {

// The gradient as the write's own backward gets it: a copy of the whole, which takes that backward's result, and one of the part.
struct GradientCopies {
  GradientCopies(const Tensor& grad, const Dims& sizes, const Dims& part_sizes) {
    Tape& tape = grad.tape();
    {
      Op op(tape, "new_empty_strided", {});
      whole = empty(tape, sizes, grad.dtype());
    }
    Op op(tape, "clone", {});
    part = empty(tape, part_sizes, grad.dtype());
  }
  Tensor whole, part;
};

// A kernel on the part: its result is written back into the whole.
void write_back(const char* name, const Tensor& part) {
  Op op(part.tape(), name, {});
  empty_like(part);
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
    const GradientCopies grad(g[0], sizes, part);
    write_back("zeros_like", grad.part);
    return Tensors{grad.whole};
  });
}

// saves nothing; what was there before gets no gradient under the write, and the value gets the part
Tensor copy_to_select_(const Tensor& x, int dim, const Tensor& value) {
  Op op(x.tape(), "copy_", {&x, &value});
  Dims part = x.sizes();
  part.erase(dim);
  return op.finish(detach(x), [sizes = x.sizes(), part](Tensors& g, Needs needs) {
    const GradientCopies grad(g[0], sizes, part);
    if (needs[0]) write_back("zeros_like", grad.part);
    return Tensors{needs[0] ? grad.whole : Tensor(), grad.part};
  });
}

// saves the result
Tensor relu_on_view_(const Tensor& x) {
  Op op(x.tape(), "relu_", {&x});
  Tensor y = detach(x);
  Saved result = op.save(y);
  y = op.finish(y, [result = std::move(result)](Tensors& g, Needs) {
    const Tensor kept = result.unpack();
    const GradientCopies grad(g[0], kept.sizes(), kept.sizes());
    write_back("threshold_backward", grad.part);
    return Tensors{grad.whole};
  });
  return view_again(y);
}

}  // namespace plimsoll
