// torch.einsum of two tensors.
#pragma once

#include <string_view>

#include "tensor/node.h"

namespace plimsoll {

// "bqhd,bkd->bhqk": one letter for each dimension, none twice in one term; letters that the result has not are summed.
Tensor einsum(std::string_view equation, const Tensor& a, const Tensor& b);

}  // namespace plimsoll
