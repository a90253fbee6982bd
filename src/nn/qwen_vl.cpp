#include "nn/qwen_vl.h"

#include "nn/masking.h"
#include "nn/transformer.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// Sections of three tables, side by side: one table, (B, 1, T, D). Every attention makes its own.
Tensor merged(const Tensor& tables) {
  return unsqueeze(filled(tables.tape(), "cat", {tables.size(1), tables.size(2), tables.size(3)}, tables.dtype()), 1);
}

Rotated rotate_by_three_tables(const Tensor& q, const Tensor& k, const CosSin& tables) {
  const Tensor cos = merged(tables.cos), sin = merged(tables.sin);
  Tensor q_embed = rotate(q, cos, sin), k_embed = rotate(k, cos, sin);
  return {q_embed, k_embed};
}

}  // namespace

DecoderConfig qwen_vl_text_config(const Config& c) {
  DecoderConfig d;
  d.vocab_size = 152064;
  d.hidden_size = 8192;
  d.intermediate_size = 29568;
  d.num_hidden_layers = 80;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 8;
  d.head_order = HeadOrder::project_first;
  d.rotary = rotate_by_three_tables;
  read_decoder_config(c, d);
  RopeDefaults rope{d.head_dim, 32768};
  rope.types = {"default", "mrope"};
  d.rope = rope_settings(c, rope);
  d.qkv_bias = true;
  if (c.flag({"use_sliding_window"}, false)) throw Error("[" + c.source() + "] use_sliding_window is not simulated", "set it to false");
  return d;
}

Module& QwenVLTextModel::add_layers() {
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.add(config);
  return *this;
}

Tensor QwenVLTextModel::operator()(const Tensor& embeds, const Tensor& position_ids, const Tensor& attention_mask, Tensors* states) {
  Forward here(*this);
  const int64_t batch = embeds.size(0), tokens = embeds.size(1);
  Tensor positions = position_ids;
  if (!positions) {
    positions = arange(tape(), tokens);
    positions = nondiff("add", positions, DType::int64);
    positions = expand(view(positions, {1, 1, -1}), {3, batch, tokens});
  }
  MaskArgs args{batch, tokens, tokens, embeds.dtype(), {}, {}};
  args.attention_mask = attention_mask;
  const Tensor mask = create_causal_mask(build(), args);
  Tensor hidden = embeds;
  const CosSin tables = rotary(hidden, positions);
  for (DecoderBlock& layer : layers) {
    if (states) states->push_back(hidden);
    const auto run = [&layer, tables, mask](const Tensor& x) { return layer(x, tables, mask); };
    hidden = run_block(layer, run, hidden);
  }
  hidden = norm(hidden);
  if (states) states->push_back(hidden);
  return hidden;
}

CosSin QwenVLTextModel::rotary(const Tensor& x, const Tensor& positions) const {
  Forward here(rotary_emb);
  const Tensor frequencies = expand(view(rotary_emb.inv_freq, {1, 1, -1, 1}), {3, positions.size(1), -1, 1});
  const Tensor wide = to(unsqueeze(positions, 2), DType::float32);
  AutocastGuard fp32(tape(), std::nullopt);
  const Tensor freqs = transpose(matmul(frequencies, wide), 2, 3);
  const Tensor emb = cat({freqs, freqs}, -1);
  CosSin tables;
  tables.cos = mul_scalar(cos(emb));
  tables.sin = mul_scalar(sin(emb));
  return {to(tables.cos, x.dtype()), to(tables.sin, x.dtype())};
}

}  // namespace plimsoll
