#include "nn/flux_blocks.h"

#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

Tensor within_fp16(Tensor x) { return x.dtype() == DType::float16 ? clamp(x) : x; }

// Which tokens see which, of a mask of tokens: (B, S) -> (B, 1, S, S)
Tensor pairs(const Tensor& mask) {
  if (!mask) return {};
  const Tensor columns = unsqueeze(unsqueeze(mask, 1), 1);
  return mul(columns, unsqueeze(unsqueeze(mask, 1), 3));
}

}  // namespace

FluxAttention::Joint::Joint(FluxAttention& parent, const FluxSizes& s)
    : Module(parent.build()),
      to_out(parent, "to_out"),
      norm_added_q((to_out.add(s.width, s.width), parent), "norm_added_q", s.head_dim),
      norm_added_k(parent, "norm_added_k", s.head_dim),
      add_q_proj(parent, "add_q_proj", s.width, s.width),
      add_k_proj(parent, "add_k_proj", s.width, s.width),
      add_v_proj(parent, "add_v_proj", s.width, s.width),
      to_add_out(parent, "to_add_out", s.width, s.width) {}

FluxAttention::FluxAttention(Module& parent, std::string_view name, const FluxSizes& s, bool is_joint)
    : Module(parent, name),
      head_dim(s.head_dim),
      norm_q(*this, "norm_q", s.head_dim),
      norm_k(*this, "norm_k", s.head_dim),
      to_q(*this, "to_q", s.width, s.width),
      to_k(*this, "to_k", s.width, s.width),
      to_v(*this, "to_v", s.width, s.width),
      joint(is_joint ? std::make_unique<Joint>(*this, s) : nullptr) {}

Tensors FluxAttention::operator()(const Tensor& hidden, const Tensor& encoder, const CosSin& rotary, const Tensor& mask) {
  Forward here(*this);
  Tensor query = to_q(hidden), key = to_k(hidden), value = to_v(hidden);  // (B, S, C)
  Tensor encoder_query, encoder_key, encoder_value;
  if (joint) {
    encoder_query = joint->add_q_proj(encoder);  // (B, T, C)
    encoder_key = joint->add_k_proj(encoder);
    encoder_value = joint->add_v_proj(encoder);
  }
  query = unflatten_heads(query, head_dim);  // (B, S, H, D)
  key = unflatten_heads(key, head_dim);
  value = unflatten_heads(value, head_dim);
  query = norm_q(query);
  key = norm_k(key);
  if (joint) {
    encoder_query = unflatten_heads(encoder_query, head_dim);  // (B, T, H, D)
    encoder_key = unflatten_heads(encoder_key, head_dim);
    encoder_value = unflatten_heads(encoder_value, head_dim);
    encoder_query = joint->norm_added_q(encoder_query);
    encoder_key = joint->norm_added_k(encoder_key);
    query = cat({encoder_query, query}, 1);  // (B, T + S, H, D)
    key = cat({encoder_key, key}, 1);
    value = cat({encoder_value, value}, 1);
  }
  query = apply_rotary_emb(query, rotary);
  key = apply_rotary_emb(key, rotary);
  Tensor out = dispatch_attention(query, key, value, mask);  // (B, T + S, H, D)
  out = flatten(out, 2, 3);
  out = to(out, query.dtype());
  if (!joint) return {out};
  const Tensors stream = split(out, {encoder.size(1), out.size(1) - encoder.size(1)}, 1);
  out = joint->to_out[0](contiguous(stream[1]));  // (B, S, C)
  return {out, joint->to_add_out(contiguous(stream[0]))};
}

FluxTransformerBlock::FluxTransformerBlock(Module& parent, std::string_view name, const FluxSizes& s)
    : Module(parent, name),
      pruned(s.pruned),
      norm1(*this, "norm1", s.width, 6, s.pruned),
      norm1_context(*this, "norm1_context", s.width, 6, s.pruned),
      attn(*this, "attn", s, true),
      norm2(*this, "norm2", s.width, false),
      ff(*this, "ff", s.width),
      norm2_context(*this, "norm2_context", s.width, false),
      ff_context(*this, "ff_context", s.width) {}

Tensors FluxTransformerBlock::operator()(const Tensor& hidden_in, const Tensor& encoder_in, const Tensor& temb, const CosSin& rotary,
                                         const Tensor& tokens_mask) {
  Forward here(*this);
  const Tensor image_emb = pruned ? slice(temb, 1, 0, 6) : temb, text_emb = pruned ? slice(temb, 1, 6, temb.size(1)) : temb;
  Tensors image = norm1(hidden_in, image_emb), text = norm1_context(encoder_in, text_emb);
  const Tensor mask = pairs(tokens_mask);
  const Tensors attended = attn(image[0], text[0], rotary, mask);

  Tensor attn_output = mul(unsqueeze(image[1], 1), attended[0]);
  Tensor hidden = add(hidden_in, attn_output);  // (B, S, C)
  image[0] = norm2(hidden);
  image[0] = modulate(image[0], image[3], image[2]);
  Tensor ff_output = ff(image[0]);
  ff_output = mul(unsqueeze(image[4], 1), ff_output);
  hidden = add(hidden, ff_output);

  const Tensor context_attn_output = mul(unsqueeze(text[1], 1), attended[1]);
  Tensor encoder = add(encoder_in, context_attn_output);  // (B, T, C)
  text[0] = norm2_context(encoder);
  text[0] = modulate(text[0], text[3], text[2]);
  const Tensor context_ff_output = ff_context(text[0]);
  {
    const Tensor gated = mul(unsqueeze(text[4], 1), context_ff_output);
    encoder = add(encoder, gated);
  }
  encoder = within_fp16(encoder);
  return {encoder, hidden};
}

FluxSingleTransformerBlock::FluxSingleTransformerBlock(Module& parent, std::string_view name, const FluxSizes& s)
    : Module(parent, name),
      norm(*this, "norm", s.width, 3, s.pruned),
      proj_mlp(*this, "proj_mlp", s.width, checked_mul(4, s.width)),
      proj_out(*this, "proj_out", checked_mul(5, s.width), s.width),
      attn(*this, "attn", s, false) {}

Tensor FluxSingleTransformerBlock::operator()(const Tensor& residual, const Tensor& temb, const CosSin& rotary, const Tensor& tokens_mask) {
  Forward here(*this);
  const Tensors normed = norm(residual, temb);                 // {(B, T + S, C), gate}
  const Tensor mlp_hidden_states = gelu(proj_mlp(normed[0]));  // (B, T + S, 4 C)
  const Tensor mask = pairs(tokens_mask);
  const Tensor attn_output = attn(normed[0], {}, rotary, mask)[0];  // (B, T + S, C)
  Tensor hidden = cat({attn_output, mlp_hidden_states}, 2);
  hidden = mul(unsqueeze(normed[1], 1), proj_out(hidden));
  hidden = add(residual, hidden);
  hidden = within_fp16(hidden);
  return hidden;
}

}  // namespace plimsoll
