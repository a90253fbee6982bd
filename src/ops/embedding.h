// Table look-up.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor embedding(const Tensor& weight, const Tensor& indices);

}  // namespace plimsoll
