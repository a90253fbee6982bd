// Multi-head latent attention of DeepSeek: queries, keys and values pass through narrow projections; a part of each head is turned by
// its position, and that part of the keys is one for all heads.
#pragma once

#include "nn/experts.h"

namespace plimsoll {

struct LatentConfig : MoeConfig {
  int64_t kv_lora_rank = 512, qk_nope_head_dim = 128, qk_rope_head_dim = 64, v_head_dim = 128;
  std::optional<int64_t> q_lora_rank = 1536;  // empty: queries are made at once
  int64_t shared_experts = 1;
  int64_t dense_layers = 0;             // the first ones have no experts
  int64_t n_group = 8, topk_group = 4;  // experts are chosen from the best few groups
  int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
};

// The keys that both generations share, over the class's defaults in `m`.
void read_latent_config(const Config& config, LatentConfig& m);
// n_group and topk_group, where experts are chosen by groups.
void read_expert_groups(const Config& config, LatentConfig& m);

struct LatentAttention : LayerAttention {
  LatentAttention(Module& parent, std::string_view name, const LatentConfig& c);
  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const override;
  // q: (B, H, T, R), k: (B, 1, T, R)
  virtual std::pair<Tensor, Tensor> turn(const Tensor& q, const Tensor& k, const CosSin& tables) const = 0;

  const LatentConfig& config;

 private:
  Tensor queries(const Tensor& x) const;
  std::unique_ptr<Linear> q_proj_, q_a_proj_;
  std::unique_ptr<RMSNorm> q_a_layernorm_;
  std::unique_ptr<Linear> q_b_proj_;
  Linear kv_a_proj_with_mqa_;
  RMSNorm kv_a_layernorm_;
  Linear kv_b_proj_, o_proj_;
};

// The best groups of experts; Python's names keep what led to them. `group_scores`: (N, groups).
struct BestGroups {
  BestGroups(const Tensor& group_scores, const LatentConfig& c);
  Tensor outside() const;  // (N, E): experts that are in none of them
  Tensor group_idx, group_mask, score_mask;
};

}  // namespace plimsoll
