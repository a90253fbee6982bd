#include "nn/diffusers_attention.h"

#include "ops/attention.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

Tensor unflatten_heads(const Tensor& x, int64_t head_dim) { return view(x, {x.size(0), x.size(1), -1, head_dim}); }

Tensor dispatch_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask) {
  AttentionArgs args;
  args.mask = mask && mask.dim() == 2 ? unsqueeze(unsqueeze(mask, 1), 1) : mask;
  const Dims heads_first{0, 2, 1, 3};
  const Tensor q = permute(query, heads_first), k = permute(key, heads_first), v = permute(value, heads_first);
  return permute(scaled_dot_product_attention(q, k, v, args), heads_first);
}

DiffusersAttention::Out::Out(Module& parent, int64_t in, int64_t width, double p)
    : Module(parent, "to_out"), linear(*this, "0", in, width), dropout(*this, "1", p) {}

DiffusersAttention::DiffusersAttention(Module& parent, std::string_view name, const AttentionSizes& s)
    : Module(parent, name),
      heads(s.heads),
      head_dim(s.head_dim),
      norm_q(s.qk_norm ? std::make_unique<DiffusersRMSNorm>(*this, "norm_q", s.head_dim) : nullptr),
      norm_k(s.qk_norm ? std::make_unique<DiffusersRMSNorm>(*this, "norm_k", s.head_dim) : nullptr),
      to_q(*this, "to_q", s.width, checked_mul(s.heads, s.head_dim), s.bias),
      to_k(*this, "to_k", s.cross_width ? s.cross_width : s.width, checked_mul(s.heads, s.head_dim), s.bias),
      to_v(*this, "to_v", s.cross_width ? s.cross_width : s.width, checked_mul(s.heads, s.head_dim), s.bias) {
  const int64_t inner = checked_mul(s.heads, s.head_dim);
  if (s.joint) {
    add_k_proj = std::make_unique<Linear>(*this, "add_k_proj", s.width, inner);
    add_v_proj = std::make_unique<Linear>(*this, "add_v_proj", s.width, inner);
    add_q_proj = std::make_unique<Linear>(*this, "add_q_proj", s.width, inner);
  }
  if (s.out) to_out_ = std::make_unique<Out>(*this, inner, s.width, s.dropout);
  if (s.joint && s.joint_out) to_add_out = std::make_unique<Linear>(*this, "to_add_out", inner, s.width);
  if (s.joint && s.qk_norm) {
    norm_added_q = std::make_unique<DiffusersRMSNorm>(*this, "norm_added_q", s.head_dim);
    norm_added_k = std::make_unique<DiffusersRMSNorm>(*this, "norm_added_k", s.head_dim);
  }
}

Tensor DiffusersAttention::project_out(const Tensor& x) const {
  const Tensor projected = to_out_->linear(x);
  return to_out_->dropout(projected);
}

Tensor attend(const DiffusersAttention& attn, const Tensor& hidden_in, const Tensor& context, const Tensor& mask) {
  Forward here(attn);
  const int64_t batch = hidden_in.size(0);
  AttentionArgs args;
  if (mask) {  // prepare_attention_mask: one copy a head
    args.mask = attn.heads > 1 ? repeat_interleave(mask, attn.heads, 0) : mask;
    args.mask = view(args.mask, {batch, attn.heads, -1, args.mask.size(-1)});
  }
  Tensor query = attn.to_q(hidden_in);  // (B, S, C)
  const Tensor& attended = context ? context : hidden_in;
  Tensor key = attn.to_k(attended), value = attn.to_v(attended);  // (B, T, C)
  const auto heads_first = [&](const Tensor& x) { return transpose(view(x, {batch, -1, attn.heads, attn.head_dim}), 1, 2); };
  query = heads_first(query);  // (B, H, S, D)
  key = heads_first(key);
  value = heads_first(value);
  if (attn.norm_q) query = (*attn.norm_q)(query);
  if (attn.norm_k) key = (*attn.norm_k)(key);
  Tensor hidden = scaled_dot_product_attention(query, key, value, args);  // (B, H, S, D)
  hidden = reshape(transpose(hidden, 1, 2), {batch, -1, attn.heads * attn.head_dim});
  hidden = to(hidden, query.dtype());
  hidden = attn.project_out(hidden);
  return div_scalar(hidden);  // by rescale_output_factor, which is 1
}

}  // namespace plimsoll
