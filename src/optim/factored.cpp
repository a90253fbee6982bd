#include "optim/factored.h"

namespace plimsoll {

namespace {

Dims without_dimension(const Dims& sizes, int dim) {
  Dims out = sizes;
  out.erase(sizes.size() + dim);
  return out;
}

}  // namespace

Factors zero_factors(const Tensor& grad) {
  Factors out;
  out.row = temporary("_to_copy", without_dimension(grad.sizes(), -1), grad.dtype(), grad.tape());
  out.column = temporary("_to_copy", without_dimension(grad.sizes(), -2), grad.dtype(), grad.tape());
  return out;
}

Tensor factored_rsqrt(const Factors& moments, const Tensor& grad) {
  temporary("mean", moments.row);
  temporary("mean", moments.column);
  Tensor rows;
  {
    Dims sizes = moments.row.sizes();
    sizes[-1] = 1;
    const Tensor mean = temporary("mean", sizes, grad.dtype(), grad.tape());
    rows = temporary("div", moments.row);
  }
  const Tensor columns = temporary("rsqrt", moments.column);
  return temporary("mul", grad.sizes(), grad.dtype(), grad.tape());
}

Tensor rms(DType dtype, Tape& tape) {
  const Tensor norm = temporary("linalg_vector_norm", Dims{}, dtype, tape);
  return temporary("div", Dims{}, dtype, tape);
}

Tensor widened(const Tensor& t) { return is_half(t.dtype()) ? temporary("_to_copy", t.sizes(), DType::float32, t.tape()) : t; }

}  // namespace plimsoll
