// ALiBi: attention's bias by distance, as BLOOM makes it from a mask of ones.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// attention_mask: (B, T). Returns (B H, 1, T).
Tensor build_alibi_tensor(const Tensor& attention_mask, int64_t heads, DType dtype);

}  // namespace plimsoll
