// Losses without a reduction: one for each token or pixel.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

Tensor cross_entropy_by_element(const Tensor& logits, const Tensor& target);  // reduction="none": the target's shape

}  // namespace plimsoll
