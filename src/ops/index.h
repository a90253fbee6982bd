// Indexing with a tensor of indices.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// x[indices]: indices address the first dimension; their shape takes its place.
Tensor index(const Tensor& x, const Tensor& indices);

}  // namespace plimsoll
