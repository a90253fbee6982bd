#include "nn/latent_attention.h"

#include "nn/transformer.h"
#include "ops/index.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

void read_latent_config(const Config& c, LatentConfig& m) {
  m.head_dim = 1;  // heads have widths of their own
  read_decoder_config(c, m);
  if (m.num_key_value_heads != m.num_attention_heads)
    throw Error("[" + c.source() + "] num_key_value_heads " + std::to_string(m.num_key_value_heads) + " is not num_attention_heads " +
                    std::to_string(m.num_attention_heads),
                "latent attention has as many of both");
  read_moe_config(c, "n_routed_experts", m);
  m.router_logits.reset();  // there is no loss that balances experts
  m.moe_intermediate_size = c.size({"moe_intermediate_size"}, m.moe_intermediate_size);
  m.kv_lora_rank = c.size({"kv_lora_rank"}, m.kv_lora_rank);
  if (c.is_null("q_lora_rank"))
    m.q_lora_rank.reset();
  else
    m.q_lora_rank = c.size({"q_lora_rank"}, *m.q_lora_rank);
  m.qk_nope_head_dim = c.size({"qk_nope_head_dim"}, m.qk_nope_head_dim);
  m.qk_rope_head_dim = c.size({"qk_rope_head_dim"}, m.qk_rope_head_dim);
  m.v_head_dim = c.size({"v_head_dim"}, m.v_head_dim);
  m.shared_experts = c.size({"n_shared_experts"}, m.shared_experts);
  m.qkv_bias = m.o_bias = c.flag({"attention_bias"}, false);
  const int64_t dense = c.integer({"first_k_dense_replace"}, m.dense_layers);
  m.sparse_layer.resize(static_cast<size_t>(m.num_hidden_layers));
  for (size_t i = 0; i < m.sparse_layer.size(); ++i) m.sparse_layer[i] = static_cast<int64_t>(i) >= dense;
  if (m.qk_rope_head_dim % 2 != 0)
    throw Error("[" + c.source() + "] qk_rope_head_dim " + std::to_string(m.qk_rope_head_dim) + " is odd", "numbers are turned in pairs");
}

void read_expert_groups(const Config& c, LatentConfig& m) {
  m.n_group = c.size({"n_group"}, m.n_group);
  m.topk_group = c.size({"topk_group"}, m.topk_group);
  c.require_divides("n_group", m.n_group, "n_routed_experts", m.num_experts);
  if (m.topk_group > m.n_group)
    throw Error("[" + c.source() + "] topk_group " + std::to_string(m.topk_group) + " is more than n_group " + std::to_string(m.n_group),
                "choose at most as many groups as there are");
}

LatentAttention::LatentAttention(Module& parent, std::string_view name, const LatentConfig& c)
    : LayerAttention(parent, name),
      config(c),
      q_proj_(c.q_lora_rank ? nullptr
                            : std::make_unique<Linear>(*this, "q_proj", c.hidden_size, c.num_attention_heads * c.qk_head_dim(), false)),
      q_a_proj_(c.q_lora_rank ? std::make_unique<Linear>(*this, "q_a_proj", c.hidden_size, *c.q_lora_rank, c.qkv_bias) : nullptr),
      q_a_layernorm_(c.q_lora_rank ? std::make_unique<RMSNorm>(*this, "q_a_layernorm", *c.q_lora_rank) : nullptr),
      q_b_proj_(c.q_lora_rank ? std::make_unique<Linear>(*this, "q_b_proj", *c.q_lora_rank, c.num_attention_heads * c.qk_head_dim(), false)
                              : nullptr),
      kv_a_proj_with_mqa_(*this, "kv_a_proj_with_mqa", c.hidden_size, c.kv_lora_rank + c.qk_rope_head_dim, c.qkv_bias),
      kv_a_layernorm_(*this, "kv_a_layernorm", c.kv_lora_rank),
      kv_b_proj_(*this, "kv_b_proj", c.kv_lora_rank, c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim), false),
      o_proj_(*this, "o_proj", c.num_attention_heads * c.v_head_dim, c.hidden_size, c.o_bias) {}

Tensor LatentAttention::queries(const Tensor& x) const {
  if (q_proj_) return (*q_proj_)(x);
  Tensor q = (*q_a_proj_)(x);
  q = (*q_a_layernorm_)(q);
  return (*q_b_proj_)(q);
}

Tensor LatentAttention::operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
  Forward here(*this);
  const int64_t batch = x.size(0), tokens = x.size(1);
  Tensor q = queries(x);
  q = transpose(view(q, {batch, tokens, -1, config.qk_head_dim()}), 1, 2);  // (B, H, T, D)
  const Tensors q_parts = split(q, {config.qk_nope_head_dim, config.qk_rope_head_dim}, -1);
  const Tensor compressed = kv_a_proj_with_mqa_(x);  // (B, T, rank + R)
  const Tensors narrow = split(compressed, {config.kv_lora_rank, config.qk_rope_head_dim}, -1);
  Tensor k_pass = kv_a_layernorm_(narrow[0]);
  k_pass = kv_b_proj_(k_pass);
  k_pass = transpose(view(k_pass, {batch, tokens, -1, config.qk_nope_head_dim + config.v_head_dim}), 1, 2);
  const Tensors kv_parts = split(k_pass, {config.qk_nope_head_dim, config.v_head_dim}, -1);
  k_pass = kv_parts[0];
  Tensor value = kv_parts[1];  // (B, H, T, V)
  Tensor q_rot = q_parts[1], k_rot = view(narrow[1], {batch, 1, tokens, config.qk_rope_head_dim});
  std::tie(q_rot, k_rot) = turn(q_rot, k_rot, tables);
  k_rot = expand(k_rot, {batch, config.num_attention_heads, tokens, -1});
  const Tensor query = cat({q_parts[0], q_rot}, -1);  // (B, H, T, D)
  Tensor key = cat({k_pass, k_rot}, -1);              // (B, H, T, D)
  update_cache(build(), key, value);
  const bool pads = build().tape.dialect.attention == AttentionKernel::flash_attention_2 && config.qk_head_dim() > config.v_head_dim;
  if (pads) value = constant_pad_nd(value, {0, config.qk_head_dim() - config.v_head_dim});
  AttentionCall call;
  call.mask = mask;
  call.dropout = config.attention_dropout;
  call.kv_groups = config.num_attention_heads / config.num_key_value_heads;
  call.caches = false;
  Tensor out = attention(build(), query, key, value, call, weights);  // (B, T, H, V)
  if (pads) out = slice(out, -1, 0, config.v_head_dim);
  out = contiguous(reshape(out, {batch, tokens, -1}));  // (B, T, H V)
  out = o_proj_(out);                                   // (B, T, C)
  return out;
}

BestGroups::BestGroups(const Tensor& group_scores, const LatentConfig& c) {
  group_idx = topk(group_scores, c.topk_group).indices;
  group_mask = nondiff("zeros_like", group_scores, group_scores.dtype());
  const int64_t tokens = group_scores.size(0);
  const Tensor by_expert = expand(unsqueeze(group_mask, -1), {tokens, c.n_group, c.num_experts / c.n_group});
  score_mask = reshape(by_expert, {tokens, c.num_experts});
}

Tensor BestGroups::outside() const {
  const Tensor inside = nondiff("_to_copy", score_mask, DType::bool_);
  return nondiff("bitwise_not", inside, DType::bool_);
}

}  // namespace plimsoll
