// The flash-attention library, version 2, as transformers calls it. Tensors are (batch, tokens, heads, head_dim), or
// (tokens, heads, head_dim) for samples that follow each other without padding.
#pragma once

#include "tensor/node.h"

namespace plimsoll {

// Samples of different lengths in one row.
struct Varlen {
  Tensor cu_seqlens;  // where each begins, int32
  int64_t samples = 0;
};

// Half types only; more heads of q than of k and v are allowed.
Tensor flash_attention_2(const Tensor& q, const Tensor& k, const Tensor& v, bool causal);
Tensor flash_attention_2(const Tensor& q, const Tensor& k, const Tensor& v, const Varlen& lengths, bool causal);

}  // namespace plimsoll
