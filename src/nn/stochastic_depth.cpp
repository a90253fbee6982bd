#include "nn/stochastic_depth.h"

#include "ops/pointwise.h"

namespace plimsoll {

Tensor stochastic_depth(const Tensor& x, double p) {
  if (p < 0.0 || p > 1.0)
    throw Error("[stochastic_depth] a probability of " + std::to_string(p) + " is not between 0 and 1", "choose one between 0 and 1");
  if (p == 0.0 || !x.tape().training) return x;
  Dims rows = Dims::filled(x.dim(), 1);
  rows[0] = x.size(0);
  const Tensor noise = filled(x.tape(), "empty", rows, x.dtype());  // (N, 1, ...), filled and scaled in place
  return mul(x, noise);                                             // the shape of x
}

}  // namespace plimsoll
