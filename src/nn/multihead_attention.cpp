#include "nn/multihead_attention.h"

#include "ops/attention.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

MultiheadAttention::MultiheadAttention(Module& parent, std::string_view name, int64_t embed_dim, int64_t num_heads, double dropout)
    : Module(parent, name),
      num_heads_(num_heads),
      dropout_(dropout),
      in_proj_weight_(parameter("in_proj_weight", {3 * embed_dim, embed_dim})),
      in_proj_bias_(parameter("in_proj_bias", {3 * embed_dim})),
      out_proj_(*this, "out_proj", embed_dim, embed_dim) {}

// One product for q, k and v, copied so that each of them lies in one piece.
Tensor MultiheadAttention::in_projection_packed(const Tensor& query) const {
  Tensor proj = linear(query, in_proj_weight_, in_proj_bias_);                        // (T, B, 3E)
  proj = unsqueeze(view(proj, {query.size(0), query.size(1), 3, query.size(2)}), 0);  // (1, T, B, 3, E)
  proj = contiguous(squeeze(transpose(proj, 0, -2), -2));                             // (3, T, B, E)
  return proj;
}

MultiheadAttention::Heads MultiheadAttention::heads_of(const Tensor& query) const {
  const Tensor proj = in_projection_packed(query);  // (3, T, B, E)
  Heads heads{select(proj, 0, 0), select(proj, 0, 1), select(proj, 0, 2)};
  const Dims sizes{query.size(0), query.size(1) * num_heads_, query.size(2) / num_heads_};
  for (Tensor* x : {&heads.q, &heads.k, &heads.v}) *x = transpose(view(*x, sizes), 0, 1);
  return heads;
}

Tensor MultiheadAttention::attend(const Tensor& query) const {
  Heads heads = heads_of(query);
  const Dims sizes{query.size(1), num_heads_, query.size(0), query.size(2) / num_heads_};
  for (Tensor* x : {&heads.q, &heads.k, &heads.v}) *x = view(*x, sizes);
  AttentionArgs args;
  args.dropout = dropout_;
  return scaled_dot_product_attention(heads.q, heads.k, heads.v, args);  // (B, H, T, D)
}

Tensor MultiheadAttention::operator()(const Tensor& x) const {
  Forward here(*this);
  const Tensor query = transpose(x, 1, 0);  // (T, B, E)
  const int64_t tokens = query.size(0), batch = query.size(1), width = query.size(2);
  Tensor out = attend(query);                                          // (B, H, T, D)
  out = reshape(permute(out, {2, 0, 1, 3}), {batch * tokens, width});  // (T * B, E)
  out = out_proj_(out);
  out = view(out, {tokens, batch, width});  // (T, B, E)
  return transpose(out, 1, 0);              // (B, T, E)
}

// Two products: one for queries, one for keys and values.
MultiheadAttention::Heads MultiheadAttention::heads_of(const Tensor& query, const Tensor& key) const {
  const int64_t width = query.size(2), batch = query.size(1);
  const Tensors weights = split(in_proj_weight_, {width, 2 * width}, 0), biases = split(in_proj_bias_, {width, 2 * width}, 0);
  const Tensor q_proj = linear(query, weights[0], biases[0]);             // (T, B, E)
  Tensor kv_proj = linear(key, weights[1], biases[1]);                    // (S, B, 2E)
  kv_proj = unsqueeze(view(kv_proj, {key.size(0), batch, 2, width}), 0);  // (1, S, B, 2, E)
  kv_proj = contiguous(squeeze(transpose(kv_proj, 0, -2), -2));           // (2, S, B, E)
  Heads heads{q_proj, select(kv_proj, 0, 0), select(kv_proj, 0, 1)};
  for (Tensor* x : {&heads.q, &heads.k, &heads.v}) *x = transpose(view(*x, {x->size(0), batch * num_heads_, width / num_heads_}), 0, 1);
  return heads;
}

Tensor MultiheadAttention::operator()(const Tensor& x, Tensor* average_weights) const {
  Forward here(*this);
  const Tensor query = transpose(x, 1, 0);  // (T, B, E)
  return weigh(heads_of(query), query.sizes(), average_weights);
}

Tensor MultiheadAttention::operator()(const Tensor& x, const Tensor& keys, Tensor* average_weights) const {
  Forward here(*this);
  const Tensor query = transpose(x, 1, 0), key = transpose(keys, 1, 0);  // (T, B, E), (S, B, E)
  return weigh(heads_of(query, key), query.sizes(), average_weights);
}

Tensor MultiheadAttention::weigh(const Heads& heads, const Dims& query, Tensor* average_weights) const {
  const int64_t tokens = query[0], batch = query[1], width = query[2];
  const Tensor q_scaled = mul_scalar(heads.q);
  Tensor weights = bmm(q_scaled, transpose(heads.k, -2, -1));  // (B * H, T, S)
  weights = softmax(weights);
  weights = dropout(weights, dropout_);
  Tensor out = bmm(weights, heads.v);                                     // (B * H, T, D)
  out = view(contiguous(transpose(out, 0, 1)), {tokens * batch, width});  // (T * B, E)
  out = out_proj_(out);
  out = view(out, {tokens, batch, width});
  weights = view(weights, {batch, num_heads_, tokens, -1});
  *average_weights = mean(weights, {1}, false);
  return transpose(out, 1, 0);  // (B, T, E)
}

}  // namespace plimsoll
