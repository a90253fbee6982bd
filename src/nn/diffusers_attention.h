// Attention of diffusers' transformers: the class that most of them share, and its call of PyTorch's kernels on (batch, tokens, heads,
// head_dim). What a model does between the two is in its own file.
#pragma once

#include "nn/diffusers_layers.h"
#include "nn/layers.h"

namespace plimsoll {

Tensor unflatten_heads(const Tensor& x, int64_t head_dim);  // (B, S, H D) -> (B, S, H, D)
// dispatch_attention_fn with the native backend. A mask of keys (B, S) is taken too. Returns (B, S, H, D).
Tensor dispatch_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask = {});

struct AttentionSizes {
  int64_t width = 0, heads = 0, head_dim = 0;
  int64_t cross_width = 0;  // of what is attended to; 0: the same
  bool joint = false;       // projections of a second stream
  bool joint_out = true;    // which also has one of its result
  bool out = true;
  bool qk_norm = false;  // RMS norms of queries and keys
  bool bias = true;
  double dropout = 0.0;
};

// attention_processor.Attention: the modules, in their order there.
struct DiffusersAttention : Module {
  DiffusersAttention(Module& parent, std::string_view name, const AttentionSizes& sizes);
  Tensor project_out(const Tensor& x) const;  // to_out: linear and dropout

  int64_t heads, head_dim;
  std::unique_ptr<DiffusersRMSNorm> norm_q, norm_k;
  Linear to_q, to_k, to_v;
  std::unique_ptr<Linear> add_k_proj, add_v_proj, add_q_proj, to_add_out;
  std::unique_ptr<DiffusersRMSNorm> norm_added_q, norm_added_k;

 private:
  struct Out : Module {
    Out(Module& parent, int64_t in, int64_t width, double dropout);
    Linear linear;
    Dropout dropout;
  };
  std::unique_ptr<Out> to_out_;
};

// AttnProcessor2_0: attention of (B, S, C) to itself or to `context` (B, T, C), with a bias or mask of (B, 1, T) or (B, 1, S, T).
Tensor attend(const DiffusersAttention& attn, const Tensor& hidden, const Tensor& context = {}, const Tensor& mask = {});

}  // namespace plimsoll
