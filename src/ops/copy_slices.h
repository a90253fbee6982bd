// In-place writes through a view. Autograd puts a CopySlices node on the viewed tensor: its backward copies the gradient,
// copies the part under the view once more, and runs the write's own backward on that part.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// x[start:end].zero_() along the first dimension: returns x's memory with the new history.
Tensor zero_slice_(const Tensor& x, int64_t start, int64_t end);
// out[:, i] = value, out[..., start::step] = value: returns out's memory with the new history; which part is written does not matter.
Tensor copy_into_slice_(const Tensor& out, const Tensor& value);
// relu_ where x is a view of the whole of another tensor, such as the output of a linear layer on batches.
Tensor relu_on_view_(const Tensor& x);

}  // namespace plimsoll
