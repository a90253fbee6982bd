#include "nn/encoder_decoder.h"

#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

EncoderDecoderConfig::EncoderDecoderConfig(const Config& c, const EncoderDecoderDefaults& d)
    : vocab_size(c.size({"vocab_size"}, d.vocab_size)),
      d_model(c.size({"d_model", "hidden_size"}, d.d_model)),
      encoder_layers(c.size({"encoder_layers", "num_hidden_layers"}, d.layers)),
      decoder_layers(c.size({"decoder_layers"}, d.layers)),
      encoder_heads(c.size({"encoder_attention_heads", "num_attention_heads"}, d.heads)),
      decoder_heads(c.size({"decoder_attention_heads"}, d.heads)),
      encoder_ffn_dim(c.size({"encoder_ffn_dim"}, d.ffn_dim)),
      decoder_ffn_dim(c.size({"decoder_ffn_dim"}, d.ffn_dim)),
      dropout(c.number({"dropout"}, d.dropout)),
      attention_dropout(c.number({"attention_dropout"}, 0.0)),
      activation_dropout(c.number({"activation_dropout"}, 0.0)),
      activation_function(c.text({"activation_function"}, "gelu")),
      tie_word_embeddings(c.flag({"tie_word_embeddings"}, true)) {
  reject_captured_outputs(c);
  c.require_divides("encoder_attention_heads", encoder_heads, "d_model", d_model);
  c.require_divides("decoder_attention_heads", decoder_heads, "d_model", d_model);
}

Tensor EncoderDecoderAttention::heads_of(Tensor x, int64_t batch) const {
  x = transpose(view(x, {batch, -1, config.d_model / head_dim, head_dim}), 1, 2);
  return config.is_whisper ? contiguous(x) : x;
}

Tensor EncoderDecoderAttention::operator()(const Tensor& x, const Tensor& encoder_states, const Tensor& mask, Tensor* weights) const {
  Forward here(*this);
  const int64_t batch = x.size(0);
  const Tensor& states = encoder_states ? encoder_states : x;
  Tensor q = q_proj(x), k, v;
  if (config.is_whisper) {
    q = mul_scalar(q);
    q = heads_of(std::move(q), batch);
    k = heads_of(k_proj(states), batch);
    v = heads_of(v_proj(states), batch);
  } else {
    q = heads_of(std::move(q), batch);
    k = k_proj(states);
    v = v_proj(states);
    k = heads_of(std::move(k), batch);
    v = heads_of(std::move(v), batch);
  }
  if (encoder_states || causal) update_cache(build(), k, v);
  AttentionCall call;
  call.mask = mask;
  call.dropout = config.attention_dropout;
  call.causal = causal;
  call.has_kv_groups = false;
  call.caches = false;
  call.softmax_fp32 = false;
  call.cast_weights = false;
  Tensor out = attention(build(), q, k, v, call, weights);     // (B, T, H, D)
  out = contiguous(reshape(out, {x.size(0), x.size(1), -1}));  // (B, T, C)
  out = out_proj(out);
  return out;
}

namespace {

// The feed-forward's layers are the layer's own. hidden: (B, T, C)
template <class Layer>
Tensor feed_forward(const Layer& layer, Tensor hidden) {
  hidden = activation(layer.config.activation_function, layer.fc1(hidden));  // (B, T, F)
  hidden = dropout(hidden, layer.config.activation_dropout);
  hidden = layer.fc2(hidden);
  return dropout(hidden, layer.config.dropout);
}

}  // namespace

// BART looks whether there is any, Whisper does not.
Tensor EncoderLayer::without_infinity(Tensor hidden) const {
  if (hidden.dtype() != DType::float16) return hidden;
  if (config.is_whisper) return clamp(hidden);
  const Tensor is_number = compare_scalar("eq", hidden);
  const Tensor magnitude = nondiff("abs", hidden, hidden.dtype());
  const Tensor is_finite = compare_scalar("ne", magnitude);
  all(compare("mul", is_number, is_finite));
  return hidden;
}

Tensor EncoderLayer::operator()(const Tensor& x, const Tensor& mask) const {
  Forward here(*this);
  Tensor weights;  // eager attention's live until the layer returns
  Tensor residual = x;
  Tensor hidden = config.is_whisper ? self_attn_layer_norm(x) : x;  // (B, T, C)
  hidden = run_attention(self_attn, hidden, &weights, Tensor(), mask);
  hidden = dropout(hidden, config.dropout);
  hidden = add(residual, hidden);
  if (!config.is_whisper) hidden = self_attn_layer_norm(hidden);
  residual = hidden;
  if (config.is_whisper) hidden = final_layer_norm(hidden);
  hidden = feed_forward(*this, std::move(hidden));
  hidden = add(residual, hidden);
  if (!config.is_whisper) hidden = final_layer_norm(hidden);
  return without_infinity(std::move(hidden));
}

Tensor DecoderLayer::operator()(const Tensor& x, const Tensor& mask, const Tensor& encoder_states, const Tensor& encoder_mask) const {
  Forward here(*this);
  Tensor weights, cross_weights;  // eager attention's live until there are new ones
  Tensor residual = x;
  Tensor hidden = config.is_whisper ? self_attn_layer_norm(x) : x;  // (B, T, C)
  hidden = run_attention(self_attn, hidden, &weights, Tensor(), mask);
  hidden = dropout(hidden, config.dropout);
  hidden = add(residual, hidden);
  if (!config.is_whisper) hidden = self_attn_layer_norm(hidden);
  residual = hidden;
  if (config.is_whisper) hidden = encoder_attn_layer_norm(hidden);
  hidden = run_attention(encoder_attn, hidden, &cross_weights, encoder_states, encoder_mask);
  weights = std::move(cross_weights);
  hidden = dropout(hidden, config.dropout);
  hidden = add(residual, hidden);
  if (!config.is_whisper) hidden = encoder_attn_layer_norm(hidden);
  residual = hidden;
  if (config.is_whisper) hidden = final_layer_norm(hidden);
  hidden = feed_forward(*this, std::move(hidden));
  hidden = add(residual, hidden);
  if (!config.is_whisper) hidden = final_layer_norm(hidden);
  return hidden;
}

Tensor run_encoder(ModuleList<EncoderLayer>& layers, Tensor hidden, const Tensor& mask) {
  for (EncoderLayer& layer : layers) {
    const auto run = [&layer, mask](const Tensor& x) { return layer(x, mask); };
    hidden = run_block(layer, run, hidden);
  }
  return hidden;
}

Tensor run_decoder(ModuleList<DecoderLayer>& layers, Tensor hidden, const Tensor& mask, const Tensor& encoder_states,
                   const Tensor& encoder_mask) {
  for (DecoderLayer& layer : layers) {
    const auto run = [&layer, encoder_mask](const Tensors& in) -> Tensors { return {layer(in[0], in[1], in[2], encoder_mask)}; };
    hidden = run_block(layer, run, Tensors{hidden, mask, encoder_states})[0];
  }
  return hidden;
}

Tensor shift_tokens_right(const Tensor& labels) {
  Tensor shifted = filled(labels.tape(), "new_zeros", labels.sizes(), DType::int64);
  clone(slice(labels, -1, 0, labels.size(-1) - 1));
  compare_scalar("eq", shifted);
  return shifted;
}

}  // namespace plimsoll
