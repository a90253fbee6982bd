#include "optim/schur_newton.h"

#include "ops/matmul.h"
#include "optim/foreach.h"

namespace plimsoll {

namespace {

Tensor scalar(const char* op, const Tensor& like) { return temporary(op, Dims{}, like.dtype(), like.tape()); }

// The largest eigenvalue: a hundred products of a vector in place.
Tensor power_iteration(const Tensor& matrix) {
  const Tensor v = temporary("randn", {matrix.size(0)}, matrix.dtype(), matrix.tape());
  const Tensor mat_v = temporary("empty_like", v);
  scalar("linalg_vector_norm", v);
  const Tensor row = temporary("mv", v);
  return scalar("dot", v);
}

// matrix + largest eigenvalue * identity * epsilon, in place
void add_ridge(const Tensor& matrix, const Tensor& identity) {
  Tensor ridge;
  {
    const Tensor largest = power_iteration(matrix);
    ridge = temporary("mul", identity);
  }
  chain(std::move(ridge), {"mul"});
}

// torch.dist: the norm of a difference
Tensor distance(const Tensor& a) {
  const Tensor difference = temporary("sub", a);
  return scalar("linalg_vector_norm", a);
}

// torch.linalg.matrix_power by squaring (ATen/native/LinearAlgebra.cpp)
Tensor matrix_power(const Tensor& matrix, int64_t power) {
  if (power == 1) return temporary("clone", matrix);
  if (power == 2) return mm(matrix, matrix);
  if (power == 3) {
    const Tensor square = mm(matrix, matrix);
    return mm(square, matrix);
  }
  Tensor z, result;
  while (power > 0) {
    const bool bit = power % 2 != 0;
    power /= 2;
    z = z ? mm(z, z) : matrix;
    if (bit) result = result ? mm(result, z) : z;
  }
  return result;
}

}  // namespace

Tensor inverse_root(const Tensor& matrix, int64_t power) {
  const Tensor identity = temporary("eye", matrix.sizes(), matrix.dtype(), matrix.tape());
  if (matrix.size(0) == 1) return identity;
  add_ridge(matrix, identity);
  Tensor z;
  {
    Tensor norm = scalar("linalg_vector_norm", matrix);
    z = rdiv(chain(std::move(norm), {"mul"}));
  }
  Tensor root;
  {
    const Tensor scale = temporary("pow", z);
    root = temporary("mul", identity);
  }
  const Tensor m = temporary("mul", matrix);
  const Tensor alpha_identity = temporary("mul", identity);
  const Tensor previous_error = distance(m);
  const Tensor m_i = temporary("empty_like", m), new_root = temporary("empty_like", root);
  temporary("mul", m);
  matrix_power(m_i, power);  // the products around it have an output of their own
  const Tensor error = distance(m);
  return root;
}

}  // namespace plimsoll
