// torch.Tensor.repeat along the first dimension.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor repeat(const Tensor& x, int64_t times);  // x.repeat(times, 1, ...): always a copy

}  // namespace plimsoll
