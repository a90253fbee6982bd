// Indexing with an index tensor, and writes through a slice that autograd follows.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// x[indices]: indices address the first dimension; their shape takes its place.
Tensor index(const Tensor& x, const Tensor& indices);
// x[start:end].zero_() along the first dimension: returns x's memory with the new history.
Tensor zero_slice_(const Tensor& x, int64_t start, int64_t end);

}  // namespace plimsoll
