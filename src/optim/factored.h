// Second moments as Adafactor keeps them: for what has two dimensions or more, their means along rows and along columns. Shared by
// optimizers whose Python code has `_approx_sq_grad`.
#pragma once

#include "optim/foreach.h"

namespace plimsoll {

struct Factors {
  Tensor row, column;
};

// Of a gradient of this shape and type: made on the CPU and copied.
Factors zero_factors(const Tensor& grad);
// The means of new squares are added to both; what comes back has the shape of the gradient: the inverse root of their product.
Tensor factored_rsqrt(const Factors& moments, const Tensor& grad);

// tensor.norm(2) / tensor.numel() ** 0.5
Tensor rms(DType dtype, Tape& tape);
// In fp32 what is in half precision.
Tensor widened(const Tensor& t);

}  // namespace plimsoll
