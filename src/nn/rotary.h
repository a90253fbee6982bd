// Rotary position embeddings as transformers computes them.
#pragma once

#include "nn/module.h"

namespace plimsoll {

struct CosSin {
  Tensor cos, sin;  // (B or 1, T, D)
};

// LlamaRotaryEmbedding: fp32 tables, made anew in every forward, cast to the type of x.
struct RotaryEmbedding : Module {
  RotaryEmbedding(Module& parent, std::string_view name, int64_t dim);
  CosSin operator()(const Tensor& x, const Tensor& position_ids) const;
  Tensor inv_freq;
};

Tensor rotate_half(const Tensor& x);
// q, k: (B, H, T, D)
std::pair<Tensor, Tensor> apply_rotary_pos_emb(const Tensor& q, const Tensor& k, const CosSin& tables);

}  // namespace plimsoll
