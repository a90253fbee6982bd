#include "ops/index.h"

namespace plimsoll {

namespace {

// saves the indices; backward adds the gradient into zeros of the full size, in place
Tensor gather_rows(const char* name, const Tensor& x, const Tensor& indices) {
  Op op(x.tape(), name, {&x});
  op.reads_part();
  Saved saved = op.save(indices);
  Dims sizes = indices.sizes();
  for (int i = 1; i < x.dim(); ++i) sizes.push_back(x.size(i));
  return op.finish(empty(x.tape(), sizes, x.dtype()), [saved = std::move(saved), before = x.sizes()](Tensors& g, Needs) {
    const Tensor positions = saved.unpack();
    Op zeros(positions.tape(), "new_zeros", {});
    return Tensors{empty(positions.tape(), before, g[0].dtype())};
  });
}

}  // namespace

Tensor index(const Tensor& x, const Tensor& indices) { return gather_rows("index", x, indices); }
// saves the indices; backward gathers
Tensor index_put_first_axis(const Tensor& values, const Tensor& indices, int64_t rows) {
  Op op(values.tape(), "index_put_first_axis", {&values});
  Dims sizes = values.sizes();
  sizes[0] = rows;
  const Tensor out = empty(values.tape(), sizes, values.dtype());
  Saved saved = op.save(indices);
  return op.finish(out, [saved = std::move(saved)](Tensors& g, Needs) { return Tensors{index(g[0], saved.unpack())}; });
}

Tensor index_select(const Tensor& x, const Tensor& indices) { return gather_rows("index_select", x, indices); }

namespace {
// What a selection's backward returns: zeros of the whole size, with the gradient written in
Tensor scattered(const Tensor& grad, const Dims& sizes) {
  Op zeros(grad.tape(), "new_zeros", {});
  return empty(grad.tape(), sizes, grad.dtype());
}
}  // namespace

// saves input and indices; backward adds into zeros of the input's size, however little memory an expanded input has
Tensor gather(const Tensor& x, int, const Tensor& indices) {
  Op op(x.tape(), "gather", {&x});
  op.reads_part();
  Saved saved = op.save(indices), self = op.save(x);
  return op.finish(empty(x.tape(), indices.sizes(), x.dtype()), [saved = std::move(saved), self = std::move(self)](Tensors& g, Needs) {
    const Tensor positions = saved.unpack(), x = self.unpack();
    return Tensors{scattered(g[0], x.sizes())};
  });
}

// saves the indices
TopK topk(const Tensor& x, int64_t k) {
  Op op(x.tape(), "topk", {&x});
  Dims sizes = x.sizes();
  sizes[-1] = k;
  const Tensor values = empty(x.tape(), sizes, x.dtype()), indices = empty(x.tape(), sizes, DType::int64);
  Saved saved = op.save(indices);
  return {op.finish(values,
                    [saved = std::move(saved), before = x.sizes()](Tensors& g, Needs) {
                      const Tensor positions = saved.unpack();
                      return Tensors{scattered(g[0], before)};
                    }),
          indices};
}

// saves the mask; backward: x's gradient is a copy with zeros in those places, the value's the rows that were chosen
Tensor index_put_(const Tensor& x, const Tensor& mask, const Tensor& value, int64_t chosen) {
  {
    Op op(x.tape(), "nonzero", {});
    const Tensor places = empty(x.tape(), {chosen, mask.dim()}, DType::int64);
  }
  Op op(x.tape(), "index_put_", {&x, &value});
  Saved saved = op.save(mask);
  Dims rows{chosen};
  for (int i = mask.dim(); i < x.dim(); ++i) rows.push_back(x.size(i));
  return op.finish(detach(x), [saved = std::move(saved), rows, value = value.sizes()](Tensors& g, Needs needs) {
    const Tensor mask = saved.unpack();
    Op op(mask.tape(), "index_put", {});
    Tensors out(2);
    if (needs[0]) {
      const Tensor zeros = empty(mask.tape(), value, g[0].dtype());
      out[0] = empty_like(g[0]);
    }
    if (needs[1]) out[1] = empty(mask.tape(), rows, g[0].dtype());
    return out;
  });
}

// saves indices, a copy of x's old contents, src and the result, though a sum needs the indices alone: backward gathers for src
Tensor scatter_reduce_(const Tensor& x, const Tensor& indices, const Tensor& src) {
  Op op(x.tape(), "scatter_reduce_", {&x, &src});
  Saved places = op.save(indices), self, source;
  if (op.recording()) {
    Op copy(x.tape(), "clone", {});
    self = op.save(empty_like(x));
  }
  source = op.save(src);
  Tensor result = detach(x);
  Saved saved_result = op.save(result);
  return op.finish(result, [places = std::move(places), self = std::move(self), source = std::move(source),
                            saved_result = std::move(saved_result)](Tensors& g, Needs needs) {
    const Tensor indices = places.unpack(), before = self.unpack(), src = source.unpack(), after = saved_result.unpack();
    Op gather(src.tape(), "gather", {});
    Tensors out(2);
    out[1] = empty(src.tape(), indices.sizes(), g[0].dtype());
    if (needs[0]) out[0] = g[0];
    return out;
  });
}

// saves the indices; backward gathers
Tensor scatter_(const Tensor& x, const Tensor& indices, const Tensor& src) {
  assert(!x.requires_grad());
  Op op(x.tape(), "scatter_", {&src});
  Saved saved = op.save(indices);
  return op.finish(detach(x), [saved = std::move(saved)](Tensors& g, Needs) {
    const Tensor indices = saved.unpack();
    Op gather(indices.tape(), "gather", {});
    return Tensors{empty(indices.tape(), indices.sizes(), g[0].dtype())};
  });
}

// saves the weights and a copy of x's old contents
Tensor weigh_rows_(const Tensor& x, const Tensor& weights) {
  Op op(x.tape(), "mul_", {&x, &weights});
  Saved other = op.save_if(op.needs(0), weights), self;
  if (op.needs(1)) {
    Op copy(x.tape(), "clone", {});
    self = op.save(empty_like(x));
  }
  return op.finish(detach(x), [other = std::move(other), self = std::move(self)](Tensors& g, Needs needs) {
    const Tensor weights = needs[0] ? other.unpack() : Tensor(), before = needs[1] ? self.unpack() : Tensor();
    Op product(g[0].tape(), "mul", {});
    Tensors out(2);
    if (needs[1]) out[1] = empty_like(g[0], promote(g[0].dtype(), before.dtype()));
    if (needs[0]) out[0] = empty_like(g[0], promote(g[0].dtype(), weights.dtype()));
    return out;
  });
}

namespace {

// masked_scatter__cuda (IndexKernel.cpp): the mask over all elements, and the number of true ones before each.
void scatter_scratch(const Tensor& x) {
  if (!x.tape().dialect.kernels.scratch) return;
  const Ref<Storage> before = x.tape().scratch(checked_mul(x.numel(), size_of(DType::int64))), mask = x.tape().scratch(x.numel());
}

// masked_select's: the three coordinates of each value.
void select_scratch(Tape& tape, const Dims& source) {
  if (!tape.dialect.kernels.scratch) return;
  const Ref<Storage> places = tape.scratch(checked_mul(numel(source), 3 * size_of(DType::int64)));
}

}  // namespace

// saves the mask; backward: the gradient with zeros in those places, and the values of those places
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  Op op(x.tape(), "masked_scatter", {&x, &source});
  op.reads(mask);
  Saved saved = op.save(mask);
  const Tensor out = empty_like(x);
  scatter_scratch(x);
  return op.finish(out, [saved = std::move(saved), values = source.sizes()](Tensors& g, Needs needs) {
    const Tensor mask = saved.unpack();
    Tape& tape = mask.tape();
    Tensors out(2);
    if (needs[0]) {
      Op op(tape, "masked_fill", {});
      out[0] = empty_like(g[0]);
    }
    if (needs[1]) {
      Op op(tape, "masked_scatter_backward", {});
      out[1] = empty(tape, values, g[0].dtype());
      select_scratch(tape, values);
    }
    return out;
  });
}

TopK sort(const Tensor& x) {
  Op op(x.tape(), "sort", {});
  const Tensor values = empty_like(x);
  return {values, empty_like(x, DType::int64)};
}

// the sorted values go at once
Tensor argsort(const Tensor& x) { return sort(x).indices; }

}  // namespace plimsoll
