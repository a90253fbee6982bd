// What torch.autocast does before an op: casts per op list. Casts of fp32 leaves are cached until the context ends.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor autocast_low(const Tensor& t);   // ops on the lower-precision list: matmul, linear, convolution, attention
Tensor autocast_fp32(const Tensor& t);  // ops on the fp32 list: pow, norms, losses, exp, ...

}  // namespace plimsoll
