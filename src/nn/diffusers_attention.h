// Attention of diffusers' transformers: its call of PyTorch's kernels on (batch, tokens, heads, head_dim).
#pragma once

#include "nn/layers.h"

namespace plimsoll {

Tensor unflatten_heads(const Tensor& x, int64_t head_dim);  // (B, S, H D) -> (B, S, H, D)
// dispatch_attention_fn with the native backend. A mask of keys (B, S) is taken too. Returns (B, S, H, D).
Tensor dispatch_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask = {});

}  // namespace plimsoll
