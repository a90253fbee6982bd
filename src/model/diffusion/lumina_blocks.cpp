#include "model/diffusion/lumina_blocks.h"

#include "nn/diffusers_rotary.h"
#include "nn/liger.h"
#include "ops/attention.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// flash-attention's layer_norm.py, as OmniGen 2 has it: saves the rows, the weight and one number a row; its backward sums the weight's
// gradient in eight rows per multiprocessor. Of no rows, it is its input, and zeros are its weight's gradient.
Tensor triton_rms_norm(const Tensor& input, const Tensor& weight) {
  Tape& tape = input.tape();
  if (input.numel() == 0) {
    Op op(tape, "LayerNormFn", {&input, &weight});
    return op.finish(detach(input), [sizes = input.sizes(), width = weight.sizes(), dtype = weight.dtype()](Tensors& g, Needs) {
      const Tensor dx = filled(g[0].tape(), "zeros", sizes, g[0].dtype());
      return Tensors{dx, filled(g[0].tape(), "zeros", width, dtype)};
    });
  }
  Op op(tape, "LayerNormFn", {&input, &weight});
  Tensor x;
  {
    GradGuard no_grad(tape, false);
    x = contiguous(input);
  }
  const Tensor y = filled(tape, "empty_like", x.sizes(), x.dtype());
  const Tensor rstd = filled(tape, "empty", {x.numel() / x.size(-1)}, DType::float32);
  Saved sx = op.save(x), sw = op.save(weight), srstd = op.save(rstd);
  return op.finish(y, [sx = std::move(sx), sw = std::move(sw), srstd = std::move(srstd)](Tensors& g, Needs) {
    Tape& tape = g[0].tape();
    const Tensor x = sx.unpack(), w = sw.unpack(), rstd = srstd.unpack(), dy = contiguous(g[0]);
    const Tensor dx = filled(tape, "empty", x.sizes(), x.dtype());
    const Tensor rows = filled(tape, "empty", {8 * kMultiprocessors, x.size(-1)}, DType::float32);
    const Tensor sum = filled(tape, "sum", {x.size(-1)}, DType::float32);
    return Tensors{dx, to(sum, w.dtype())};
  });
}

// A product with complex numbers of twice the precision, (B, S, D / 2), seen as pairs of fp64. x: (B, S, H, D) in fp32. Saves the
// factors; backward makes their conjugates first, and its result fp32 again.
Tensor complex_product(const Tensor& x, const Tensor& factors) {
  Op op(x.tape(), "mul", {&x});
  Saved saved = op.save(factors);
  return op.finish(empty(x.tape(), x.sizes(), DType::float64), [saved = std::move(saved)](Tensors& g, Needs) {
    const Tensor grad = contiguous(g[0]);
    Tensor product;
    {
      const Tensor factors = saved.unpack();
      const Tensor conjugate = filled(factors.tape(), "clone", factors.sizes(), DType::float64);
      product = nondiff("mul", grad, DType::float64);
    }
    return Tensors{to(product, DType::float32)};
  });
}

// apply_rotary_emb with use_real=False. x: (B, S, H, D)
Tensor rotate(const Tensor& x, const Tensor& freqs) {
  const Tensor wide = to(x, DType::float32);
  const Tensor out = complex_product(wide, freqs);
  return to(out, x.dtype());
}

Tensor fp32_silu(const Tensor& x) {
  const Tensor y = silu(to(x, DType::float32));
  return to(y, x.dtype());
}

// One table an axis, looked up at every token, side by side.
Tensor rotary_tables(Tape& tape, const LuminaConfig& c, int64_t batch, int64_t tokens) {
  Tensors result;
  Tensor freqs, index;
  for (size_t i = 0; i < 3; ++i) {
    freqs = filled(tape, "_to_copy", {c.axes_lens[i], c.axes_dim[i]}, DType::float64);
    index = nondiff("_to_copy", filled(tape, "repeat", {batch, tokens, c.axes_dim[i] / 2}, DType::int32), DType::int64);
    const Tensor every_sample = filled(tape, "repeat", {batch, c.axes_lens[i], c.axes_dim[i]}, DType::float64);
    result.push_back(filled(tape, "gather", {batch, tokens, c.axes_dim[i]}, DType::float64));
  }
  return cat(result, -1);
}

// x + tanh(gate) * norm(y)
Tensor gated(const Tensor& x, const Tensor& gate, const LuminaNorm& norm, const Tensor& y) {
  Tensor product;
  {
    const Tensor factor = tanh(unsqueeze(gate, 1)), normed = norm(y);
    product = mul(factor, normed);
  }
  return add(x, product);
}

}  // namespace

LuminaConfig::LuminaConfig(const Config& c, const char* model, const char* text_key)
    : patches{.sample_size = c.size({"sample_size"}, 128), .patch = c.size({"patch_size"}, 2), .channels = c.size({"in_channels"}, 16)},
      out_channels(c.size({"out_channels"}, patches.channels)),
      width(c.size({"hidden_size"}, 2304)),
      time_width(std::min<int64_t>(width, 1024)),
      num_layers(c.size({"num_layers"}, 26)),
      num_refiner_layers(c.size({"num_refiner_layers"}, 2)),
      heads(c.size({"num_attention_heads"}, 24)),
      kv_heads(c.size({"num_kv_heads"}, 8)),
      text_width(c.size({text_key}, 1024)),
      axes_dim(sizes_in(c, "axes_dim_rope", {32, 32, 32}, 3)),
      axes_lens(sizes_in(c, "axes_lens", {300, 512, 512}, 3)) {
  c.require_divides("num_attention_heads", heads, "hidden_size", width);
  c.require_divides("num_kv_heads", kv_heads, "num_attention_heads", heads);
  head_dim = width / heads;
  require_rotary_axes(c, "axes_dim_rope", axes_dim, "hidden_size / num_attention_heads", head_dim);
  const int64_t multiple_of = c.size({"multiple_of"}, 256);
  const double factor = c.number({"ffn_dim_multiplier"}, 1.0);
  inner = static_cast<int64_t>(factor * static_cast<double>(checked_mul(4, width)));
  inner = (inner + multiple_of - 1) / multiple_of * multiple_of;
  if (inner <= 0) throw Error(std::string("[") + model + "] ffn_dim_multiplier leaves no feed-forward", "give a number above 0, or null");
}

LuminaNorm::LuminaNorm(Module& parent, std::string_view name, int64_t width, LuminaNormKind kind)
    : Module(parent, name), weight(parameter("weight", {width})), kind(kind) {}

Tensor LuminaNorm::operator()(const Tensor& x) const {
  Forward here(*this);
  switch (kind) {
    case LuminaNormKind::diffusers: return diffusers_rms_norm(x, weight);
    case LuminaNormKind::torch: return rms_norm(x, weight);
    case LuminaNormKind::triton: break;
  }
  return triton_rms_norm(x, weight);
}

LuminaAttention::LuminaAttention(Module& parent, std::string_view name, const LuminaConfig& c) : Module(parent, name), config_(c) {
  to_out_.add(c.width, c.width, false);
}

Tensor LuminaAttention::operator()(const Tensor& hidden_in, const Tensor& mask, const Tensor& freqs) {
  Forward here(*this);
  const int64_t batch = hidden_in.size(0), tokens = hidden_in.size(1);
  Tensor query = to_q_(hidden_in), key = to_k_(hidden_in), value = to_v_(hidden_in);  // (B, S, C), (B, S, KV D)
  const DType dtype = query.dtype();
  query = view(query, {batch, tokens, config_.heads, config_.head_dim});
  key = view(key, {batch, tokens, config_.kv_heads, config_.head_dim});
  value = view(value, {batch, tokens, config_.kv_heads, config_.head_dim});
  query = norm_q_(query);
  key = norm_k_(key);
  query = rotate(query, freqs);
  key = rotate(key, freqs);
  {
    const Tensor q = to(query, dtype), k = to(key, dtype);
    query = q;
    key = k;
  }
  if (!config_.omnigen2) {
    key = repeat_heads(key);  // (B, S, H, D)
    value = repeat_heads(value);
  }
  AttentionArgs args;
  if (mask) args.mask = view(mask.dtype() == DType::bool_ ? mask : nondiff("_to_copy", mask, DType::bool_), {batch, 1, 1, tokens});
  query = transpose(query, 1, 2);  // (B, H, S, D)
  key = transpose(key, 1, 2);
  value = transpose(value, 1, 2);
  if (config_.omnigen2) {
    key = repeat_interleave(key, config_.heads / config_.kv_heads, 1);
    value = repeat_interleave(value, config_.heads / config_.kv_heads, 1);
  }
  Tensor hidden = scaled_dot_product_attention(query, key, value, args);
  hidden = reshape(transpose(hidden, 1, 2), {batch, tokens, config_.heads * config_.head_dim});
  hidden = to(hidden, query.dtype());
  hidden = to_out_[0](hidden);
  return hidden;
}

Tensor LuminaAttention::repeat_heads(const Tensor& x) const {
  const Tensor copies =
      clone(expand(unsqueeze(x, 3), {x.size(0), x.size(1), config_.kv_heads, config_.heads / config_.kv_heads, config_.head_dim}));
  return flatten(copies, 2, 3);
}

Tensor LuminaFeedForward::operator()(const Tensor& x) const {
  Forward here(*this);
  if (config_.omnigen2) {
    const Tensor h1 = linear_1_(x), h2 = linear_3_(x);  // (B, S, inner); kept to the end
    Tensor product;
    {
      const Tensor gate = fp32_silu(h1);
      product = mul(gate, h2);
    }
    return linear_2_(product);
  }
  Tensor product;
  {
    const Tensor gate = fp32_silu(linear_1_(x)), value = linear_3_(x);  // (B, S, inner)
    product = mul(gate, value);
  }
  return linear_2_(product);
}

Tensors LuminaFirstNorm::operator()(const Tensor& x, const Tensor& temb) const {
  Forward here(*this);
  const Tensors part = chunk(linear(silu(temb)), 4, 1);
  const Tensor normed = norm(x);
  return {mul(normed, add_scalar(unsqueeze(part[0], 1))), part[1], part[2], part[3]};
}

LuminaBlock::LuminaBlock(Module& parent, std::string_view name, const LuminaConfig& c, bool modulation)
    : Module(parent, name),
      attn_(*this, "attn", c),
      feed_forward_(*this, "feed_forward", c),
      norm1_(modulation ? std::make_unique<LuminaFirstNorm>(*this, "norm1", c) : nullptr),
      plain_norm1_(modulation ? nullptr : std::make_unique<LuminaNorm>(*this, "norm1", c.width, c.norm)),
      ffn_norm1_(*this, "ffn_norm1", c.width, c.norm),
      norm2_(*this, "norm2", c.width, c.norm),
      ffn_norm2_(*this, "ffn_norm2", c.width, c.norm) {}

Tensor LuminaBlock::operator()(const Tensor& hidden_in, const Tensor& mask, const Tensor& freqs, const Tensor& temb) {
  Forward here(*this);
  if (!norm1_) return unmodulated(hidden_in, mask, freqs);
  const Tensors normed = (*norm1_)(hidden_in, temb);
  const Tensor attn_output = attn_(normed[0], mask, freqs);
  Tensor hidden = gated(hidden_in, normed[1], norm2_, attn_output);
  Tensor mlp_output;
  {
    Tensor scaled = ffn_norm1_(hidden);
    scaled = mul(scaled, add_scalar(unsqueeze(normed[2], 1)));
    mlp_output = feed_forward_(scaled);
  }
  hidden = gated(hidden, normed[3], ffn_norm2_, mlp_output);
  return hidden;
}

Tensor LuminaBlock::unmodulated(const Tensor& hidden_in, const Tensor& mask, const Tensor& freqs) {
  const Tensor normed = (*plain_norm1_)(hidden_in);
  const Tensor attn_output = attn_(normed, mask, freqs);
  Tensor hidden = add(hidden_in, norm2_(attn_output));
  const Tensor mlp_output = feed_forward_(ffn_norm1_(hidden));
  hidden = add(hidden, ffn_norm2_(mlp_output));
  return hidden;
}

LuminaTimeCaptionEmbedding::CaptionEmbedder::CaptionEmbedder(Module& parent, const LuminaConfig& c)
    : Module(parent, "caption_embedder"), norm(*this, "0", c.text_width, c.norm), linear(*this, "1", c.text_width, c.width) {}

LuminaTimeCaptionEmbedding::Result LuminaTimeCaptionEmbedding::operator()(const Tensor& timestep, const Tensor& states, DType dtype) const {
  const Tensor projected = to(time_proj_(timestep), dtype);
  Result out;
  out.time = timestep_embedder_(projected);
  Forward here(caption_embedder_);
  const Tensor normed = caption_embedder_.norm(states);
  out.caption = caption_embedder_.linear(normed);
  return out;
}

Tensor LuminaLastNorm::operator()(const Tensor& input, const Tensor& temb) const {
  Forward here(*this);
  Tensor scale = silu(temb);
  scale = to(scale, input.dtype());
  scale = linear_1_(scale);
  Tensor x = norm_(input);
  x = mul(x, unsqueeze(add_scalar(scale), 1));
  x = linear_2_(x);
  return x;
}

void require_lumina_positions(const char* model, const LuminaConfig& c, int64_t text, int64_t rows, int64_t columns) {
  const int64_t needed[] = {text + 1, rows, columns};
  for (size_t i = 0; i < 3; ++i)
    if (needed[i] > c.axes_lens[i])
      throw Error(std::string("[") + model + "] " + std::to_string(needed[i]) + " positions along axis " + std::to_string(i) +
                      ", but axes_lens has " + std::to_string(c.axes_lens[i]),
                  i == 0 ? "use fewer text_tokens" : "use a smaller image");
}

LuminaRotary lumina_rotary(Tape& tape, const LuminaConfig& c, int64_t batch, int64_t text, int64_t rows, int64_t columns) {
  const int64_t image = checked_mul(rows, columns), tokens = checked_add(text, image);
  { const Tensor lengths = filled(tape, "sum", {batch}, DType::int64); }
  const Tensor position_ids = filled(tape, "zeros", {batch, tokens, 3}, DType::int32);
  Tensor row_ids, column_ids;
  const auto repeated = [&](const Tensor& x) { return filled(tape, c.omnigen2 ? "clone" : "repeat", {rows, columns}, x.dtype()); };
  for (int64_t i = 0; i < batch; ++i) {
    { const Tensor text_ids = arange(tape, text, DType::int32); }
    row_ids = repeated(arange(tape, rows, DType::int32));
    column_ids = repeated(arange(tape, columns, DType::int32));
  }
  LuminaRotary out;
  out.both = rotary_tables(tape, c, batch, tokens);
  out.text = filled(tape, "zeros", {batch, text, c.head_dim}, DType::float64);
  out.image = filled(tape, "zeros", {batch, image, c.head_dim}, DType::float64);
  out.positions = {position_ids, row_ids, column_ids};
  return out;
}

Tensor lumina_images(const Tensor& hidden, const LuminaConfig& c, int64_t first, int64_t rows, int64_t columns) {
  const int64_t patch = c.patches.patch;
  Tensors output;
  for (int64_t i = 0; i < hidden.size(0); ++i) {
    Tensor image = slice(select(hidden, 0, i), 0, first, hidden.size(1));
    image = permute(view(image, {rows, columns, patch, patch, c.out_channels}), {4, 0, 2, 1, 3});
    output.push_back(flatten(flatten(image, 3, 4), 1, 2));
  }
  return stack(output, 0);
}

}  // namespace plimsoll
