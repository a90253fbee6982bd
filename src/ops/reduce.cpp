#include "ops/reduce.h"

#include "ops/autocast.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "tensor/number.h"

namespace plimsoll {

namespace {

Dims reduced(const Dims& sizes, const Dims& dims, bool keepdim) {
  Dims out;
  for (int i = 0; i < sizes.size(); ++i) {
    bool gone = false;
    for (int64_t d : dims) gone |= (d < 0 ? d + sizes.size() : d) == i;
    if (!gone) {
      out.push_back(sizes[i]);
    } else if (keepdim) {
      out.push_back(1);
    }
  }
  return out;
}

// The gradient of a reduction, seen in the shape before it.
Tensor expand_back(Tensor g, const Dims& sizes, const Dims& dims, bool keepdim) {
  if (keepdim) return expand(g, sizes);
  Dims kept = reduced(sizes, dims, true);
  g = alias(g, kept, [&] {
    Dims strides = Dims::filled(kept.size(), 0);
    int from = 0;
    for (int i = 0; i < kept.size(); ++i) {
      bool gone = false;
      for (int64_t d : dims) gone |= (d < 0 ? d + sizes.size() : d) == i;
      strides[i] = gone ? 1 : g.strides()[from++];
    }
    return strides;
  }());
  return expand(g, sizes);
}

Dims all_dims(const Tensor& x) {
  Dims dims;
  for (int i = 0; i < x.dim(); ++i) dims.push_back(i);
  return dims;
}

}  // namespace

// saves nothing; backward is a view (expand). Under autocast a half input is summed into fp32.
Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  const DType dtype = x.dtype() == DType::bool_ ? DType::int64 : x.tape().autocast && is_half(x.dtype()) ? DType::float32 : x.dtype();
  Op op(x.tape(), "sum", {&x});
  Tensor out = empty(x.tape(), reduced(x.sizes(), dims, keepdim), dtype);
  if (x.tape().dialect.rules.casts_operands && x.dtype() != dtype) x.tape().allocate(checked_mul(x.numel(), size_of(dtype)));
  return op.finish(std::move(out),
                   [sizes = x.sizes(), dims, keepdim](Tensors& g, Needs) { return Tensors{expand_back(g[0], sizes, dims, keepdim)}; });
}

Tensor sum(const Tensor& x) { return sum(x, all_dims(x), false); }

// saves where the largest stand; backward: zeros of the whole size, with the gradient written in
Tensor max(const Tensor& x, bool keepdim) {
  Op op(x.tape(), "max", {&x});
  const Dims sizes = reduced(x.sizes(), {-1}, keepdim);
  const Tensor values = empty(x.tape(), sizes, x.dtype()), indices = empty(x.tape(), sizes, DType::int64);
  Saved saved = op.save(indices);
  return op.finish(values, [saved = std::move(saved), before = x.sizes()](Tensors& g, Needs) {
    const Tensor positions = saved.unpack();
    Op zeros(g[0].tape(), "new_zeros", {});
    return Tensors{empty(g[0].tape(), before, g[0].dtype())};
  });
}

// saves nothing (PyTorch 1.13 its input, unless all dimensions go); backward: expand, then a division that allocates the full size
Tensor mean(const Tensor& x, const Dims& wanted, bool keepdim) {
  const Dims dims = wanted.empty() ? all_dims(x) : wanted;
  Op op(x.tape(), "mean", {&x});
  Saved self = op.save_if(x.tape().dialect.rules.mean_saves_input && !wanted.empty(), x);
  Tensor out = empty(x.tape(), reduced(x.sizes(), dims, keepdim), x.dtype());
  { const Number count(x.tape(), x.dtype()); }  // divides in place
  return op.finish(std::move(out), [self = std::move(self), sizes = x.sizes(), dims, keepdim](Tensors& g, Needs) {
    const Tensor wide = expand_back(g[0], sizes, dims, keepdim);
    Op op(wide.tape(), "div", {});
    const Number count(wide.tape(), wide.dtype());
    return Tensors{empty_like(wide)};
  });
}

// saves self; backward: 2 / (n - 1) * grad * (self - its mean)
Tensor var(const Tensor& x, int dim) {
  Op op(x.tape(), "var", {&x});
  Saved self = op.save(x);
  return op.finish(empty(x.tape(), reduced(x.sizes(), {dim}, false), x.dtype()), [self = std::move(self), dim](Tensors& g, Needs) {
    const Tensor x = self.unpack();
    const Tensor scaled = mul_scalar(unsqueeze(g[0], dim));
    const Tensor centred = sub(x, mean(x, {dim}, true));
    return Tensors{mul(scaled, centred)};
  });
}

// saves self and the result; backward: grad * (self / result), zero where the result is. Under autocast a half input is
// summed into fp32.
Tensor vector_norm(const Tensor& x, const Dims& dims) {
  const DType dtype = x.tape().autocast && is_half(x.dtype()) ? DType::float32 : x.dtype();
  Op op(x.tape(), "linalg_vector_norm", {&x});
  Saved self = op.save(x);
  Tensor norm = empty(x.tape(), reduced(x.sizes(), dims, true), dtype);
  Saved result = op.save(norm);
  return op.finish(norm, [self = std::move(self), result = std::move(result)](Tensors& g, Needs) {
    const Tensor norm = result.unpack(), x = self.unpack();
    const Tensor direction = div(x, norm);
    const Tensor is_zero = compare_scalar("eq", norm);
    return Tensors{mul(g[0], direction)};
  });
}

Tensor sum_to_size(const Tensor& x, const Dims& sizes) {
  if (x.sizes() == sizes) return x;
  const int leading = x.dim() - sizes.size();
  Dims dims;
  for (int i = 0; i < x.dim(); ++i)
    if (i < leading || (sizes[i - leading] == 1 && x.size(i) != 1)) dims.push_back(i);
  Tensor out = dims.empty() ? x : sum(x, dims, true);
  return leading > 0 ? view(out, sizes) : out;
}

Tensor all(const Tensor& x) {
  Op op(x.tape(), "all", {});
  return empty(x.tape(), {}, DType::bool_);
}

Tensor cumsum(const Tensor& x, int, DType dtype) {
  Op op(x.tape(), "cumsum", {});
  return empty(x.tape(), x.sizes(), dtype);
}

// saves nothing; backward: the gradient turned round, summed and turned back. On autocast's fp32 list.
Tensor cumsum(const Tensor& input, int dim) {
  const Tensor x = autocast_fp32(input);
  Op op(x.tape(), "cumsum", {&x});
  return op.finish(empty(x.tape(), x.sizes(), x.dtype()), [dim](Tensors& g, Needs) {
    if (g[0].size(dim) == 1 || g[0].numel() <= 1) return Tensors{g[0]};
    auto step = [](const char* name, const Tensor& from) {
      Op op(from.tape(), name, {});
      op.reads(from);
      return empty(from.tape(), from.sizes(), from.dtype());
    };
    Tensor sums;
    {
      const Tensor turned = step("flip", g[0]);
      sums = step("cumsum", turned);
    }
    return Tensors{step("flip", sums)};
  });
}

}  // namespace plimsoll
