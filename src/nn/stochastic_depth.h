// torchvision.ops.stochastic_depth in row mode: drops whole samples of a batch.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// p == 0 returns x itself.
Tensor stochastic_depth(const Tensor& x, double p);

}  // namespace plimsoll
