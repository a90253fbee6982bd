#include "ops/matmul.h"

#include <algorithm>

#include "ops/autocast.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// prepare_matrix_for_cublas of Blas.cpp: a matrix whose rows and columns are both strided is copied for the call.
bool suits_blas(const Tensor& m) {
  const int64_t rows = m.size(-2), columns = m.size(-1), down = m.strides()[-2], along = m.strides()[-1];
  return (along == 1 && down >= std::max<int64_t>(1, columns)) || (down == 1 && along >= std::max<int64_t>(1, rows));
}

// What the library takes while it multiplies: its workspace and copies of what it cannot read in place.
void multiply(const Tensor& a, const Tensor& b, bool with_bias = false) {
  Tape& tape = a.tape();
  Ref<Storage> left, right;
  if (tape.dialect.kernels.scratch) {
    if (!suits_blas(a)) left = tape.scratch(checked_mul(a.numel(), size_of(a.dtype())));
    if (!suits_blas(b)) right = tape.scratch(checked_mul(b.numel(), size_of(b.dtype())));
  }
  if (tape.dialect.rules.mm_copies_strided_2d && a.dim() == 2) {  // the right one first: results are in rows
    if (!suits_blas(b)) right = tape.allocate(checked_mul(b.numel(), size_of(b.dtype())));
    if (!suits_blas(a)) left = tape.allocate(checked_mul(a.numel(), size_of(a.dtype())));
  }
  tape.use_blas(with_bias);
  tape.flops(2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1)), a.dtype(), Unit::matmul);
}

Tensor product(const char* name, const Tensor& a, const Tensor& b) {
  Op op(a.tape(), name, {});
  op.reads(a);
  op.reads(b);
  Dims sizes = a.sizes();
  sizes[-1] = b.size(-1);
  Tensor out = empty(a.tape(), sizes, a.dtype());
  multiply(a, b);
  return out;
}

bool is_column_major(const Dims& sizes, const Dims& strides) { return strides[0] == 1 && strides[1] == sizes[0]; }

// mm_mat1_backward, mm_mat2_backward: laid out like the input, so that a parameter can take its gradient over.
Tensor grad_of_left(const Tensor& g, const Tensor& right, const TensorMeta& left, const Dims& left_strides) {
  if (is_column_major(left.sizes, left_strides)) return transpose(product("mm", right, transpose(g, 0, 1)), 0, 1);
  return product("mm", g, transpose(right, 0, 1));
}

Tensor grad_of_right(const Tensor& g, const Tensor& left, const TensorMeta& right, const Dims& right_strides) {
  if (is_column_major(right.sizes, right_strides)) return transpose(product("mm", transpose(g, 0, 1), left), 0, 1);
  return product("mm", transpose(left, 0, 1), g);
}

void check_inner(const char* op, const Tensor& a, const Tensor& b) {
  if (a.size(-1) != b.size(-2))
    throw Error(std::string("[") + op + "] " + to_string(a.sizes()) + " x " + to_string(b.sizes()) + " do not match",
                "the widths in the model's configuration do not fit together");
}

Tensor mm_plain(const Tensor& a, const Tensor& b) {
  check_inner("mm", a, b);
  Op op(a.tape(), "mm", {&a, &b});
  Saved self = op.save_if(op.needs(1), a), mat2 = op.save_if(op.needs(0), b);
  Tensor out = empty(a.tape(), {a.size(0), b.size(1)}, a.dtype());
  multiply(a, b);
  return op.finish(std::move(out), [self = std::move(self), mat2 = std::move(mat2), ma = TensorMeta{a.sizes(), a.dtype()}, sa = a.strides(),
                                    mb = TensorMeta{b.sizes(), b.dtype()}, sb = b.strides()](Tensors& g, Needs needs) {
    const Tensor b = mat2.defined() ? mat2.unpack() : Tensor(), a = self.defined() ? self.unpack() : Tensor();
    Tensors out(2);
    if (needs[1]) out[1] = grad_of_right(g[0], a, mb, sb);
    if (needs[0]) out[0] = grad_of_left(g[0], b, ma, sa);
    return out;
  });
}

Tensor addmm_plain(const Tensor& bias, const Tensor& a, const Tensor& b) {
  check_inner("addmm", a, b);
  Op op(a.tape(), "addmm", {&bias, &a, &b});
  Saved mat1 = op.save_if(op.needs(2), a), mat2 = op.save_if(op.needs(1), b);
  Tensor out = empty(a.tape(), {a.size(0), b.size(1)}, a.dtype());
  multiply(a, b, true);
  return op.finish(std::move(out), [mat1 = std::move(mat1), mat2 = std::move(mat2), ma = TensorMeta{a.sizes(), a.dtype()}, sa = a.strides(),
                                    mb = TensorMeta{b.sizes(), b.dtype()}, sb = b.strides()](Tensors& g, Needs needs) {
    const Tensor a = mat1.defined() ? mat1.unpack() : Tensor(), b = mat2.defined() ? mat2.unpack() : Tensor();
    Tensors out(3);
    if (needs[1]) out[1] = grad_of_left(g[0], b, ma, sa);
    if (needs[2]) out[2] = grad_of_right(g[0], a, mb, sb);
    if (needs[0]) out[0] = g[0];  // summed to the bias's shape by the engine
    return out;
  });
}

Tensor bmm_plain(const Tensor& a, const Tensor& b) {
  check_inner("bmm", a, b);
  Op op(a.tape(), "bmm", {&a, &b});
  Saved self = op.save_if(op.needs(1), a), mat2 = op.save_if(op.needs(0), b);
  Tensor out = empty(a.tape(), {a.size(0), a.size(1), b.size(2)}, a.dtype());
  multiply(a, b);
  return op.finish(std::move(out), [self = std::move(self), mat2 = std::move(mat2)](Tensors& g, Needs needs) {
    const Tensor b = mat2.defined() ? mat2.unpack() : Tensor(), a = self.defined() ? self.unpack() : Tensor();
    Tensors out(2);
    if (needs[1]) out[1] = product("bmm", transpose(a, 1, 2), g[0]);
    if (needs[0]) out[0] = product("bmm", g[0], transpose(b, 1, 2));
    return out;
  });
}

// Gradients are scaled by alpha after their product.
Tensor baddbmm_plain(const Tensor& bias, const Tensor& a, const Tensor& b) {
  assert(!bias.requires_grad());
  check_inner("baddbmm", a, b);
  Op op(a.tape(), "baddbmm", {&bias, &a, &b});
  Saved batch1 = op.save_if(op.needs(2), a), batch2 = op.save_if(op.needs(1), b);
  Tensor out = empty(a.tape(), {a.size(0), a.size(1), b.size(2)}, a.dtype());
  multiply(a, b, true);
  return op.finish(std::move(out), [batch1 = std::move(batch1), batch2 = std::move(batch2)](Tensors& g, Needs needs) {
    const Tensor a = batch1.defined() ? batch1.unpack() : Tensor(), b = batch2.defined() ? batch2.unpack() : Tensor();
    Tensors out(3);
    if (needs[1]) out[1] = mul_scalar(product("bmm", g[0], transpose(b, 1, 2)));
    if (needs[2]) out[2] = mul_scalar(product("bmm", transpose(a, 1, 2), g[0]));
    return out;
  });
}

// One product for all groups: rows of a times each group's matrix, or, of two matrices that are both in groups, one result a group.
Tensor grouped_product(const Tensor& a, const Tensor& b, int64_t groups) {
  Op op(a.tape(), "_grouped_mm", {});
  op.reads(a);
  op.reads(b);
  const bool by_group = b.dim() == 2;
  Tensor out = empty(a.tape(), by_group ? Dims{groups, a.size(0), b.size(1)} : Dims{a.size(0), b.size(2)}, a.dtype());
  a.tape().use_blas(false);
  a.tape().flops(2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1)), a.dtype(), Unit::matmul);
  return out;
}

// GroupedMMUtils.h: the kernel reads rows that start at multiples of 16 bytes.
void check_aligned(const Tensor& m) {
  const int64_t row = std::max(m.strides()[-1], m.strides()[-2]);
  if (row * size_of(m.dtype()) % 16 != 0)
    throw Error("[grouped_mm] rows of " + std::to_string(row) + " numbers in " + to_string(m.sizes()) + " are not a multiple of 16 bytes",
                "choose hidden and expert sizes that are multiples of 8");
}

// at::native::should_fold: a batched matrix times a plain one becomes one big mm.
bool should_fold(const Tensor& a, const Tensor& b) {
  const bool a_is_larger = a.dim() >= b.dim();
  const Tensor& big = a_is_larger ? a : b;
  const Tensor& small = a_is_larger ? b : a;
  if (big.dim() < 3 || small.dim() > 2) return false;
  // By strides alone: always, but for matrices that lie transposed in a batch.
  if (!big.tape().dialect.rules.matmul_folds_trained_operands)
    return !(big.dim() == 3 && small.dim() == 2 && big.strides()[2] != 1 && big.strides()[0] == big.size(1) * big.size(2));
  if (small.requires_grad()) return true;
  if (a.dim() == 2) return false;
  for (int i = 0; i < big.dim() - 2; ++i)
    if (big.strides()[i] != big.strides()[i + 1] * big.size(i + 1)) return false;
  return true;
}

// `trained`: b is made of a parameter, which counts as wanting its gradient under no_grad, too.
Tensor matmul_plain(const Tensor& a, const Tensor& b, bool trained = false) {
  if (a.dim() == 2 && b.dim() == 2) return mm_plain(a, b);
  if (should_fold(a, b) || (trained && a.dim() >= 3 && b.dim() == 2 && a.tape().dialect.rules.matmul_folds_trained_operands)) {
    if (a.dim() < b.dim()) {  // (n, k) x (..., k, m): fold the transposed product
      Tensor out = matmul_plain(transpose(b, -1, -2), t(a));
      return transpose(out, -1, -2);
    }
    Dims shape = a.sizes();
    shape[-1] = b.size(-1);
    const Tensor folded = reshape(a, {-1, a.size(-1)});
    return view(mm_plain(folded, b), shape);
  }
  Dims batch_a = a.sizes(), batch_b = b.sizes();
  for (Dims* d : {&batch_a, &batch_b}) {
    d->erase(d->size() - 1);
    d->erase(d->size() - 1);
  }
  const Dims batch = broadcast(batch_a, batch_b);
  auto batched = [&](const Tensor& x) {
    Dims sizes = batch;
    sizes.push_back(x.size(-2));
    sizes.push_back(x.size(-1));
    return reshape(expand(x, sizes), {numel(batch), x.size(-2), x.size(-1)});
  };
  const Tensor left = batched(a), right = batched(b);
  Dims shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  return view(bmm_plain(left, right), shape);
}

}  // namespace

// Autocast evaluates its casts from the last argument to the first.
Tensor mm(const Tensor& a, const Tensor& b) {
  const Tensor right = autocast_low(b), left = autocast_low(a);
  return mm_plain(left, right);
}

Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  const Tensor right = autocast_low(b), left = autocast_low(a), shift = autocast_low(bias);
  return addmm_plain(shift, left, right);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  const Tensor right = autocast_low(b), left = autocast_low(a);
  return bmm_plain(left, right);
}

Tensor baddbmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  const Tensor right = autocast_low(b), left = autocast_low(a), start = autocast_low(bias);
  return baddbmm_plain(start, left, right);
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  const Tensor right = autocast_low(b), left = autocast_low(a);
  return matmul_plain(left, right);
}

// saves b, the offsets and a; gradients are laid out like what they belong to
Tensor grouped_mm(const Tensor& a, const Tensor& b, const Tensor& offsets) {
  check_inner("grouped_mm", a, b);
  check_aligned(a);
  check_aligned(b);
  const int64_t groups = b.size(0);
  const bool column_major = b.strides()[1] == 1 && b.size(1) > 1;
  Op op(a.tape(), "_grouped_mm", {&a, &b});
  Saved mat2 = op.save_if(op.needs(0), b), offs = op.save(offsets), self = op.save_if(op.needs(1), a);
  return op.finish(grouped_product(a, b, groups), [mat2 = std::move(mat2), offs = std::move(offs), self = std::move(self), groups,
                                                   column_major](Tensors& g, Needs needs) {
    const Tensor b = mat2.defined() ? mat2.unpack() : Tensor(), ends = offs.unpack(), a = self.defined() ? self.unpack() : Tensor();
    Tensors out(2);
    if (needs[1])
      out[1] = column_major ? transpose(grouped_product(transpose(g[0], 0, 1), a, groups), 1, 2)
                            : grouped_product(transpose(a, 0, 1), g[0], groups);
    if (needs[0]) out[0] = grouped_product(g[0], transpose(b, 1, 2), groups);
    return out;
  });
}

namespace {

void check_widths(const Tensor& x, const Tensor& weight) {
  if (x.size(-1) != weight.size(1))
    throw Error("[linear] input " + to_string(x.sizes()) + " does not match weight " + to_string(weight.sizes()),
                "the widths in the model's configuration do not fit together");
}

Tensor linear_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const GradGuard no_grad(x.tape(), false);
  if (x.dim() == 2 && bias) return addmm_plain(bias, x, t(weight));
  return matmul_plain(x, t(weight));  // the bias is added in place
}

}  // namespace

// saves input, weight and bias, after the result is there: it is a function of Python's
Tensor linear_function(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_widths(x, weight);
  Op op(x.tape(), "LinearFunctionForZeroStage3", {&x, &weight, &bias});
  Tensor out = linear_product(x, weight, bias);
  Saved input = op.save(x), w = op.save(weight), b = op.save(bias);
  return op.finish(std::move(out), [input = std::move(input), w = std::move(w), b = std::move(b)](Tensors& g, Needs needs) {
    const Tensor x = input.unpack(), weight = w.unpack(), bias = b.defined() ? b.unpack() : Tensor();
    Tensors out(3);
    if (needs[0]) out[0] = matmul_plain(g[0], weight);
    if (needs[1]) {
      const Tensor rows = t(reshape(g[0], {-1, g[0].size(-1)}));
      const Tensor columns = reshape(x, {-1, x.size(-1)});
      out[1] = mm_plain(rows, columns);
    }
    if (bias && needs[2]) {
      x.tape().op = "sum";
      out[2] = empty(x.tape(), bias.sizes(), g[0].dtype());
    }
    return out;
  });
}

Tensor linear(const Tensor& input, const Tensor& w, const Tensor& b) {
  const Tensor bias = autocast_low(b), weight = autocast_low(w), x = autocast_low(input);
  check_widths(x, weight);
  if (bias && (x.dim() == 2 || x.is_contiguous())) {
    Dims shape = x.sizes();
    shape[-1] = weight.size(0);
    const Tensor flat = x.dim() == 2 ? x : view(x, {-1, x.size(-1)});
    Tensor out = addmm_plain(bias, flat, t(weight));
    return x.dim() == 2 ? out : view(out, shape);
  }
  Tensor out = matmul_plain(x, t(weight), w.requires_grad());
  if (!bias) return out;
  return x.tape().dialect.recorder ? add(out, bias) : add_(out, bias);
}

}  // namespace plimsoll
