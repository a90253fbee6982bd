// torch.nn.functional.logsigmoid.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor log_sigmoid(const Tensor& x);

}  // namespace plimsoll
