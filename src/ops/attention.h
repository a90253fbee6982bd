// torch.nn.functional.scaled_dot_product_attention and the kernels behind it. Shapes are (batch, heads, tokens, head_dim).
#pragma once

#include "tensor/node.h"

namespace plimsoll {

struct AttentionArgs {
  Tensor mask;  // undefined: none
  double dropout = 0.0;
  bool causal = false;
  bool grouped = false;  // enable_gqa: fewer key/value heads than query heads
};

// Takes the kernel that CUDA would take (the dialect may ask for another): flash for half types without a mask, else
// memory-efficient, which has no grouped-query support, else math, which holds the whole score matrix.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionArgs& args);

// xformers.ops.memory_efficient_attention on (batch * heads, tokens, head_dim), which is the memory-efficient kernel above.
Tensor memory_efficient_attention(const Tensor& q, const Tensor& k, const Tensor& v);

}  // namespace plimsoll
