// pytorch_optimizer's compute_power_schur_newton: the inverse root of a statistic, by coupled Newton iterations.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// `power` is p of matrix^(-1/p). What it makes lives until it returns; how many iterations run changes nothing.
Tensor inverse_root(const Tensor& matrix, int64_t power);

}  // namespace plimsoll
