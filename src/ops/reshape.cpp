#include "ops/reshape.h"

#include "ops/reduce.h"
#include "tensor/transposed_copy.h"

namespace plimsoll {

namespace {
int wrap(int dim, int n) { return dim < 0 ? dim + n : dim; }
}  // namespace

// ---- views ----------------------------------------------------------------------------------------------------------

// backward: grad.reshape(self.sizes())
Tensor view(const Tensor& x, const Dims& shape_or_unknown) {
  const Dims shape = infer_size(shape_or_unknown, x.numel());
  Dims strides;
  if (!view_strides(x.sizes(), x.strides(), shape, &strides))
    throw Error("[view] " + to_string(x.sizes()) + " cannot be viewed as " + to_string(shape), "use reshape");
  Op op(x.tape(), "view", {&x});
  return op.finish(alias(x, shape, strides),
                   [sizes = x.sizes()](Tensors& g, Needs) { return Tensors{g[0] ? reshape(g[0], sizes) : Tensor()}; });
}

Tensor transpose(const Tensor& x, int a, int b) {
  Dims sizes = x.sizes(), strides = x.strides();
  std::swap(sizes[a], sizes[b]);
  std::swap(strides[a], strides[b]);
  Op op(x.tape(), "transpose", {&x});
  return op.finish(alias(x, sizes, strides), [a, b](Tensors& g, Needs) { return Tensors{transpose(g[0], a, b)}; });
}

Tensor t(const Tensor& x) { return x.dim() < 2 ? x : transpose(x, 0, 1); }

Tensor permute(const Tensor& x, const Dims& order) {
  Dims sizes, strides, inverse = Dims::filled(order.size(), 0);
  for (int i = 0; i < order.size(); ++i) {
    sizes.push_back(x.size(static_cast<int>(order[i])));
    strides.push_back(x.strides()[static_cast<int>(order[i])]);
    inverse[wrap(static_cast<int>(order[i]), order.size())] = i;
  }
  Op op(x.tape(), "permute", {&x});
  return op.finish(alias(x, sizes, strides), [inverse](Tensors& g, Needs) { return Tensors{permute(g[0], inverse)}; });
}

Tensor unsqueeze(const Tensor& x, int dim) {
  const int d = dim < 0 ? dim + x.dim() + 1 : dim;
  Dims sizes = x.sizes(), strides = x.strides();
  const int64_t stride = d == x.dim() ? 1 : checked_mul(sizes[d], strides[d]);
  sizes.insert(d, 1);
  strides.insert(d, stride);
  Op op(x.tape(), "unsqueeze", {&x});
  return op.finish(alias(x, sizes, strides), [d](Tensors& g, Needs) { return Tensors{squeeze(g[0], d)}; });
}

Tensor squeeze(const Tensor& x, int dim) {
  const int d = wrap(dim, x.dim());
  Dims sizes = x.sizes(), strides = x.strides();
  const bool removed = sizes[d] == 1;
  if (removed) {
    sizes.erase(d);
    strides.erase(d);
  }
  Op op(x.tape(), "squeeze", {&x});
  return op.finish(alias(x, sizes, strides), [d, removed](Tensors& g, Needs) { return Tensors{removed ? unsqueeze(g[0], d) : g[0]}; });
}

// backward: grad summed to the size before
Tensor expand(const Tensor& x, const Dims& wanted) {
  const int offset = wanted.size() - x.dim();
  Dims sizes = wanted, strides = Dims::filled(wanted.size(), 0);
  for (int i = 0; i < x.dim(); ++i) {
    const int d = offset + i;
    if (sizes[d] == -1) sizes[d] = x.size(i);
    if (x.size(i) != sizes[d] && x.size(i) != 1)
      throw Error("[expand] " + to_string(x.sizes()) + " cannot be expanded to " + to_string(wanted), "check the model's sizes");
    strides[d] = x.size(i) == sizes[d] ? x.strides()[i] : 0;
  }
  for (int d = offset - 1; d >= 0; --d) strides[d] = checked_mul(sizes[d + 1], strides[d + 1]);
  for (int d = 0; d < offset; ++d) strides[d] = sizes[d] == 1 ? strides[d] : 0;
  Op op(x.tape(), "expand", {&x});
  return op.finish(alias(x, sizes, strides), [before = x.sizes()](Tensors& g, Needs) { return Tensors{sum_to_size(g[0], before)}; });
}

// backward: slice_backward writes the gradient into zeros of the full size
Tensor slice(const Tensor& x, int dim, int64_t start, int64_t end, int64_t step) {
  const int d = wrap(dim, x.dim());
  const int64_t n = x.size(d);
  auto clamp = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t first = clamp(start), last = std::max(first, clamp(end));
  Dims sizes = x.sizes(), strides = x.strides();
  sizes[d] = (last - first + step - 1) / step;
  strides[d] *= step;
  Op op(x.tape(), "slice", {&x});
  return op.finish(alias(x, sizes, strides), [before = x.sizes()](Tensors& g, Needs) {
    Op op(g[0].tape(), "slice_backward", {});
    op.reads(g[0]);
    return Tensors{empty(g[0].tape(), before, g[0].dtype())};
  });
}

Tensor getitem(const Tensor& x, int dim, int64_t start, int64_t end) {
  if (start > 0 || end < x.size(dim)) return slice(x, dim, start, end);
  Op op(x.tape(), "alias", {&x});
  return op.finish(alias(x, x.sizes(), x.strides()), [](Tensors& g, Needs) { return Tensors{g[0]}; });
}

// backward: select_backward writes the gradient into zeros of the full size
Tensor select(const Tensor& x, int dim, int64_t) {
  const int d = wrap(dim, x.dim());
  Dims sizes = x.sizes(), strides = x.strides();
  sizes.erase(d);
  strides.erase(d);
  Op op(x.tape(), "select", {&x});
  return op.finish(alias(x, sizes, strides), [before = x.sizes()](Tensors& g, Needs) {
    Op op(g[0].tape(), "select_backward", {});
    op.reads(g[0]);
    return Tensors{empty(g[0].tape(), before, g[0].dtype())};
  });
}

// backward: one cat of all the gradients, with zeros for outputs nobody used
Tensors split(const Tensor& x, const std::vector<int64_t>& lengths, int dim) {
  const int d = wrap(dim, x.dim());
  Tensors out;
  for (int64_t length : lengths) {
    Dims sizes = x.sizes();
    sizes[d] = length;
    out.push_back(alias(x, sizes, x.strides()));
  }
  Op op(x.tape(), "split", {&x});
  op.finish(out, [d, lengths, sizes = x.sizes(), dtype = x.dtype(), tape = &x.tape()](Tensors& g, Needs) {
    Tensors parts;
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (g[i]) {
        parts.push_back(g[i]);
        continue;
      }
      Dims part = sizes;
      part[d] = lengths[i];
      Op op(*tape, "zeros", {});
      parts.push_back(empty(*tape, part, dtype));
    }
    return Tensors{cat(parts, d)};
  });
  return out;
}

Tensors split(const Tensor& x, int64_t size, int dim) {
  std::vector<int64_t> lengths;
  for (int64_t left = x.size(dim); left > 0; left -= size) lengths.push_back(std::min(size, left));
  return split(x, lengths, dim);
}

Tensors chunk(const Tensor& x, int64_t chunks, int dim) { return split(x, (x.size(dim) + chunks - 1) / chunks, dim); }

// backward: one stack of all the gradients
Tensors unbind(const Tensor& x, int dim) {
  const int d = wrap(dim, x.dim());
  Dims sizes = x.sizes(), strides = x.strides();
  const int64_t n = sizes[d];
  sizes.erase(d);
  strides.erase(d);
  Tensors out;
  for (int64_t i = 0; i < n; ++i) out.push_back(alias(x, sizes, strides));
  Op op(x.tape(), "unbind", {&x});
  op.finish(out, [d, sizes, dtype = x.dtype(), tape = &x.tape()](Tensors& g, Needs) {
    Tensors parts = g;
    for (Tensor& p : parts) {
      if (p) continue;
      Op op(*tape, "zeros", {});
      p = empty(*tape, sizes, dtype);
    }
    return Tensors{stack(parts, d)};
  });
  return out;
}

// ---- copies ---------------------------------------------------------------------------------------------------------

// saves nothing; backward passes the gradient on
Tensor clone(const Tensor& x) {
  Op op(x.tape(), "clone", {&x});
  const Tensor copy = empty(x.tape(), x.sizes(), x.dtype());
  block_transposed_copy(copy, x);
  return op.finish(copy, [](Tensors& g, Needs) { return Tensors{g[0]}; });
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }

namespace {
// backward: grad.reshape(self.sizes())
Tensor unsafe_view(const Tensor& x, const Dims& shape) {
  Op op(x.tape(), "_unsafe_view", {&x});
  return op.finish(alias(x, shape, contiguous_strides(shape)),
                   [sizes = x.sizes()](Tensors& g, Needs) { return Tensors{reshape(g[0], sizes)}; });
}
}  // namespace

Tensor reshape(const Tensor& x, const Dims& shape_or_unknown) {
  const Dims shape = infer_size(shape_or_unknown, x.numel());
  Dims strides;
  if (view_strides(x.sizes(), x.strides(), shape, &strides)) return view(x, shape);
  const Tensor copy = clone(x);
  return unsafe_view(copy, shape);
}

Tensor flatten(const Tensor& x, int start, int end) {
  const int first = wrap(start, x.dim()), last = wrap(end, x.dim());
  if (first == last) return x;
  Dims shape;
  int64_t joined = 1;
  for (int i = 0; i < x.dim(); ++i) {
    if (i < first || i > last) {
      shape.push_back(x.size(i));
      continue;
    }
    joined = checked_mul(joined, x.size(i));
    if (i == last) shape.push_back(joined);
  }
  return reshape(x, shape);
}

// saves nothing; backward casts the gradient back
Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Op op(x.tape(), "_to_copy", {&x});
  return op.finish(empty_like(x, dtype), [before = x.dtype()](Tensors& g, Needs) { return Tensors{to(g[0], before)}; });
}

// backward: views of the gradient, each cast to its input's type by the engine
Tensor cat(const Tensors& xs, int dim) {
  const Tensor& first = xs.at(0);
  const int d = wrap(dim, first.dim());
  Dims sizes = first.sizes();
  sizes[d] = 0;
  DType dtype = first.dtype();
  std::vector<int64_t> lengths;
  bool channels_last = true;
  for (const Tensor& x : xs) {
    sizes[d] = checked_add(sizes[d], x.size(d));
    dtype = promote(dtype, x.dtype());
    lengths.push_back(x.size(d));
    channels_last &= !x.is_contiguous() && is_channels_last(x.sizes(), x.strides());
  }
  Op op(first.tape(), "cat", xs);
  Tensor out = empty_strided(first.tape(), sizes, channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes), dtype);
  for (const Tensor& x : xs)
    if (first.tape().dialect.rules.cat_copies_casts && x.dtype() != dtype)
      first.tape().allocate(checked_mul(x.numel(), size_of(x.dtype())));
  return op.finish(std::move(out), [d, lengths](Tensors& g, Needs) {  // cat_tensors_backward: of all of them, wanted or not
    Tensors parts(lengths.size());
    for (size_t i = 0; i < lengths.size(); ++i) {
      Dims part = g[0].sizes();
      part[d] = lengths[i];
      parts[i] = alias(g[0], part, g[0].strides());
    }
    return parts;
  });
}

// backward: unbind of the gradient
Tensor stack(const Tensors& xs, int dim) {
  const Tensor& first = xs.at(0);
  const int d = dim < 0 ? dim + first.dim() + 1 : dim;
  Dims sizes = first.sizes();
  sizes.insert(d, static_cast<int64_t>(xs.size()));
  Op op(first.tape(), "stack", xs);
  return op.finish(empty(first.tape(), sizes, first.dtype()), [d](Tensors& g, Needs) { return unbind(g[0], d); });
}

// saves the indices; backward adds the gradient into zeros of the full size, in place
Tensor index(const Tensor& x, const Tensors& indices) {
  Dims sizes;
  for (const Tensor& i : indices) sizes = broadcast(sizes, i.sizes());
  for (int d = static_cast<int>(indices.size()); d < x.dim(); ++d) sizes.push_back(x.size(d));
  Op op(x.tape(), "index", {&x});
  std::vector<Saved> saved;
  for (const Tensor& i : indices) saved.push_back(op.save(i));
  return op.finish(empty(x.tape(), sizes, x.dtype()), [saved = std::move(saved), before = x.sizes()](Tensors& g, Needs) {
    Tensors indices;
    for (const Saved& s : saved) indices.push_back(s.unpack());
    Op op(g[0].tape(), "new_zeros", {});
    op.reads(g[0]);
    return Tensors{empty(g[0].tape(), before, g[0].dtype())};
  });
}

// backward: one sum over the repetitions
Tensor repeat_rows(const Tensor& x, int64_t times) {
  Op op(x.tape(), "repeat", {&x});
  return op.finish(empty(x.tape(), {checked_mul(times, x.size(0)), x.size(1)}, x.dtype()), [before = x.sizes()](Tensors& g, Needs) {
    Op sum(g[0].tape(), "sum", {});
    sum.reads(g[0]);
    return Tensors{empty(g[0].tape(), before, g[0].dtype())};
  });
}

// expand, then a copy
Tensor repeat_interleave(const Tensor& x, int64_t repeats, int dim) {
  const int d = wrap(dim, x.dim());
  Dims sizes = x.sizes();
  sizes.insert(d + 1, repeats);
  const Tensor copies = clone(expand(unsqueeze(x, d + 1), sizes));
  return flatten(copies, d, d + 1);
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  Op op(x.tape(), "roll", {&x});
  return op.finish(empty(x.tape(), x.sizes(), x.dtype()), [shifts, dims](Tensors& g, Needs) { return Tensors{roll(g[0], shifts, dims)}; });
}

// backward: the gradient cut to size
Tensor constant_pad_nd(const Tensor& x, const Dims& pad) {
  Dims sizes = x.sizes(), back;
  for (int i = 0; i < pad.size(); ++i) {
    int64_t& size = sizes[x.dim() - 1 - i / 2];
    size = checked_add(size, pad[i]);
    back.push_back(-pad[i]);
  }
  Op op(x.tape(), "constant_pad_nd", {&x});
  return op.finish(empty(x.tape(), sizes, x.dtype()), [back](Tensors& g, Needs) { return Tensors{constant_pad_nd(g[0], back)}; });
}

}  // namespace plimsoll
