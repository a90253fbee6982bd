// torch.nn.MultiheadAttention for self-attention: batch_first, need_weights=False, no masks, through
// scaled_dot_product_attention.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

struct MultiheadAttention : Module {
  MultiheadAttention(Module& parent, std::string_view name, int64_t embed_dim, int64_t num_heads, double dropout);
  Tensor operator()(const Tensor& x) const;  // (B, T, E)

 private:
  Tensor in_projection_packed(const Tensor& query) const;
  Tensor attend(const Tensor& query) const;

  int64_t num_heads_;
  double dropout_;
  Tensor in_proj_weight_, in_proj_bias_;
  Linear out_proj_;
};

}  // namespace plimsoll
