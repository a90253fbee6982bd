// torch.nn.MultiheadAttention: batch_first, no masks. Without weights (need_weights=False) it goes through
// scaled_dot_product_attention; with them it holds the score matrix.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

struct MultiheadAttention : Module {
  MultiheadAttention(Module& parent, std::string_view name, int64_t embed_dim, int64_t num_heads, double dropout);
  Tensor operator()(const Tensor& x) const;  // (B, T, E)
  // need_weights=True: also their mean over the heads, (B, T, T).
  Tensor operator()(const Tensor& x, Tensor* average_weights) const;
  // Of queries (B, T, E) to keys that are the values, too (B, S, E), with weights (B, T, S).
  Tensor operator()(const Tensor& x, const Tensor& keys, Tensor* average_weights) const;

 private:
  struct Heads {
    Tensor q, k, v;  // (B * H, T, D)
  };
  Tensor in_projection_packed(const Tensor& query) const;
  Heads heads_of(const Tensor& query) const;
  Heads heads_of(const Tensor& query, const Tensor& key) const;
  Tensor weigh(const Heads& heads, const Dims& query, Tensor* average_weights) const;
  Tensor attend(const Tensor& query) const;

  int64_t num_heads_;
  double dropout_;
  Tensor in_proj_weight_, in_proj_bias_;
  Linear out_proj_;
};

}  // namespace plimsoll
