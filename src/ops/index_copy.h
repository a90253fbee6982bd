// Tensor.index_copy_ and index_add_: columns put at their places, rows added to theirs.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// x.index_copy_(-1, indices, source) in place, into an x without a gradient: returns x's memory with the new history.
Tensor index_copy_(const Tensor& x, const Tensor& indices, const Tensor& source);
// x.index_add_(0, indices, source) in place: returns x's memory with the new history.
Tensor index_add_(const Tensor& x, const Tensor& indices, const Tensor& source);

}  // namespace plimsoll
