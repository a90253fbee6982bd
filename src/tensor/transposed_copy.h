// What a copy allocates by rule `blocks_transposed_copies`: a matrix that is transposed goes through a square block
// (aten/src/ATen/native/Copy.cpp, copy_same_type_transpose_). On a device a copy takes nothing.
#pragma once

#include "tensor/tape.h"

namespace plimsoll {

inline void block_transposed_copy(const Tensor& to, const Tensor& from) {
  if (!from.tape().dialect.rules.blocks_transposed_copies || from.dim() != 2 || !to.is_contiguous() || to.dtype() != from.dtype()) return;
  const bool transposed = from.strides()[0] == 1 && from.strides()[1] == from.size(0);
  constexpr int64_t kSide = 60;  // BLOCK_SZ; a byte's is 120, and of a smaller matrix nothing is gained
  const int64_t side = from.dtype() == DType::uint8 ? 2 * kSide : kSide;
  if (transposed && from.numel() >= kSide * kSide) from.tape().allocate(side * side * size_of(from.dtype()));
}

}  // namespace plimsoll
