#include "nn/decoder.h"
#include "nn/liger.h"
#include "nn/tensor_parallel.h"
#include "nn/transformer.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

Rotated liger_rotated(const Tensor& q, const Tensor& k, const CosSin& tables) {
  auto [q_embed, k_embed] = liger_rotary_pos_emb(q, k, tables);
  return {q_embed, k_embed};
}

}  // namespace

Rotated rotate_heads(const Tensor& q, const Tensor& k, const CosSin& tables) {
  auto [q_embed, k_embed] = apply_rotary_pos_emb(q, k, tables);
  return {q_embed, k_embed};
}

// The fp32 results stay until both are cast.
Rotated rotate_heads_in_fp32(const Tensor& q, const Tensor& k, const CosSin& tables) {
  const auto [q_embed, k_embed] = apply_rotary_pos_emb(q, k, tables);
  Tensor q_cast = to(q_embed, q.dtype());
  return {q_cast, to(k_embed, k.dtype())};
}

Rotated rotate_part_of_heads(const Tensor& q, const Tensor& k, const CosSin& tables) {
  const Tensor cos = unsqueeze(tables.cos, 1), sin = unsqueeze(tables.sin, 1);
  const int64_t rotary_dim = cos.size(-1);
  const Tensor q_rot = getitem(q, -1, 0, rotary_dim), q_pass = getitem(q, -1, rotary_dim, q.size(-1));
  const Tensor k_rot = getitem(k, -1, 0, rotary_dim), k_pass = getitem(k, -1, rotary_dim, k.size(-1));
  const Tensor q_embed = cat({rotate(q_rot, cos, sin), q_pass}, -1);
  const Tensor k_embed = cat({rotate(k_rot, cos, sin), k_pass}, -1);
  return {q_embed, k_embed};
}

Rotated rotate_parts(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin,
                     Tensor (*turn)(const Tensor& x, const Tensor& cos, const Tensor& sin)) {
  const int64_t rotary_dim = cos.size(-1);
  const Tensor q_rot = getitem(q, -1, 0, rotary_dim), q_pass = getitem(q, -1, rotary_dim, q.size(-1));
  const Tensor k_rot = getitem(k, -1, 0, rotary_dim), k_pass = getitem(k, -1, rotary_dim, k.size(-1));
  Tensor q_embed = turn(q_rot, cos, sin);
  Tensor k_embed = turn(k_rot, cos, sin);
  q_embed = cat({q_embed, q_pass}, -1);
  k_embed = cat({k_embed, k_pass}, -1);
  return {q_embed, k_embed};
}

Rotated rotate_part_in_attention(const Tensor& q, const Tensor& k, const CosSin& tables) {
  const int64_t rotary_ndims = tables.cos.size(-1);
  Tensor q_rot = getitem(q, -1, 0, rotary_ndims), k_rot = getitem(k, -1, 0, rotary_ndims);
  const Tensor q_pass = getitem(q, -1, rotary_ndims, q.size(-1)), k_pass = getitem(k, -1, rotary_ndims, k.size(-1));
  std::tie(q_rot, k_rot) = apply_rotary_pos_emb(q_rot, k_rot, tables);
  const Tensor q_embed = cat({q_rot, q_pass}, -1);
  const Tensor k_embed = cat({k_rot, k_pass}, -1);
  return {q_embed, k_embed, {q_rot, k_rot, q_pass, k_pass}};
}

DecoderAttention::DecoderAttention(Module& parent, std::string_view name, const DecoderConfig& c, size_t layer)
    : LayerAttention(parent, name), config_(c), rotates_(c.rotates.empty() || c.rotates[layer]) {
  const int64_t queries = c.num_attention_heads * c.head_dim, keys = c.num_key_value_heads * c.head_dim;
  const auto linear = [this](const char* part, int64_t in, int64_t out, bool bias) {
    return std::make_unique<Linear>(*this, part, in, out, bias);
  };
  const bool fused = c.head_order == HeadOrder::one_projection;
  if (!fused) {
    q_proj_ = linear("q_proj", c.hidden_size, queries, c.qkv_bias);
    k_proj_ = linear("k_proj", c.hidden_size, keys, c.qkv_bias);
    v_proj_ = linear("v_proj", c.hidden_size, keys, c.qkv_bias);
  }
  o_proj_ = linear(c.out_proj, queries, c.hidden_size, c.o_bias);
  if (fused) qkv_proj_ = linear("qkv_proj", c.hidden_size, queries + 2 * keys, c.qkv_bias);
  if (const TensorParallel* tp = build().tensor_parallel)
    for (int64_t heads : {c.num_attention_heads, c.num_key_value_heads})
      tp->share(heads == c.num_attention_heads ? "num_attention_heads" : "num_key_value_heads", heads);
  if (!c.qk_norm.make) return;
  q_norm_ = c.qk_norm.make(*this, c.qk_norm.query, c.num_attention_heads, c.head_dim);
  k_norm_ = c.qk_norm.make(*this, c.qk_norm.key, c.num_key_value_heads, c.head_dim);
}

DecoderAttention::Heads DecoderAttention::project(const Tensor& x) const {
  const Dims heads{x.size(0), x.size(1), -1, config_.head_dim};
  const auto split = [&heads](const Tensor& t) { return view(t, heads); };  // (B, T, H, D)
  const auto turn = [](const Tensor& t) { return transpose(t, 1, 2); };     // (B, H, T, D)
  const auto early = [this](const std::unique_ptr<UnaryModule>& norm, const Tensor& t) {
    return config_.qk_norm.last ? t : normed(norm, t);
  };
  Heads h;
  switch (config_.head_order) {
    case HeadOrder::in_turn:
      h.q = turn(early(q_norm_, split((*q_proj_)(x))));
      h.k = turn(early(k_norm_, split((*k_proj_)(x))));
      h.v = turn(split((*v_proj_)(x)));
      return h;
    case HeadOrder::project_first:
      h.q = early(q_norm_, (*q_proj_)(x));
      h.k = early(k_norm_, (*k_proj_)(x));
      h.v = (*v_proj_)(x);
      if (config_.clips_qkv)
        for (Tensor* t : {&h.q, &h.k, &h.v}) *t = clamp_(*t);
      for (Tensor* t : {&h.q, &h.k, &h.v}) *t = turn(split(*t));
      return h;
    case HeadOrder::turn_last:
      h.q = split((*q_proj_)(x));
      h.k = split((*k_proj_)(x));
      h.v = split((*v_proj_)(x));
      h.q = early(q_norm_, h.q);
      h.k = early(k_norm_, h.k);
      for (Tensor* t : {&h.q, &h.k, &h.v}) *t = turn(*t);
      return h;
    case HeadOrder::one_projection: break;
  }
  const Tensor qkv = (*qkv_proj_)(x);  // (B, T, (H + 2 KV) D)
  const int64_t query_pos = config_.num_attention_heads * config_.head_dim;
  const int64_t key_pos = query_pos + config_.num_key_value_heads * config_.head_dim;
  h = {slice(qkv, -1, 0, query_pos), slice(qkv, -1, query_pos, key_pos), slice(qkv, -1, key_pos, qkv.size(-1))};
  for (Tensor* t : {&h.q, &h.k, &h.v}) *t = turn(split(*t));
  return h;
}

Tensor DecoderAttention::operator()(const Tensor& input, const CosSin& tables, const Tensor& mask, Tensor* weights) const {
  Forward here(*this);
  const Tensor x = enter_parallel(build(), input);
  auto [q, k, v] = project(x);
  if (config_.qk_norm.last) {
    q = normed(q_norm_, q);
    k = normed(k_norm_, k);
  }
  Tensors kept;
  if (rotates_) {
    const Rotary rotate_all = build().loss.liger.rope ? liger_rotated : config_.rotary;
    Rotated rotated = rotate_all(q, k, tables);
    q = std::move(rotated.q);
    k = std::move(rotated.k);
    kept = std::move(rotated.kept);
  }
  AttentionCall call;
  call.mask = mask;
  call.dropout = config_.attention_dropout;
  call.causal = config_.causal;
  call.kv_groups = config_.num_attention_heads / config_.num_key_value_heads;
  call.softcap = config_.softcap;
  Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
  out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, H D)
  out = (*o_proj_)(out);                                       // (B, T, C)
  out = dropout(out, config_.output_dropout);
  return out;
}

}  // namespace plimsoll
