// PyTorch's memory formats, as ops ask for them.
#pragma once

#include "tensor/tensor.h"

namespace plimsoll {

// c10's is_contiguous(ChannelsLast): where a dimension of size 1 stands does not matter.
inline bool is_contiguous_channels_last(const Tensor& t) {
  if (t.dim() != 4) return false;
  const Dims wanted = channels_last_strides(t.sizes());
  for (int d = 0; d < t.dim(); ++d)
    if (t.size(d) != 1 && t.strides()[d] != wanted[d]) return false;
  return true;
}

}  // namespace plimsoll
