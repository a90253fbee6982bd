#include "nn/rotary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ops/complex.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "util/text.h"

namespace plimsoll {

namespace {

int64_t frequencies_of(const RopeSettings& s) { return s.type == "proportional" ? s.dim / 2 : (s.dim + 1) / 2; }

// 1.0 / x: a reciprocal and its product with the number, while x is held
Tensor one_over(const Tensor& x) {
  const Tensor y = nondiff("reciprocal", x, DType::float32);
  return nondiff("mul", y, DType::float32);
}

// torch.polar(torch.ones_like(angles), angles) * a number
Tensor polar(const Tensor& angles) {
  Tensor table;
  {
    const Tensor ones = nondiff("ones_like", angles, DType::float32);
    table = nondiff("polar", angles, kComplex64);
  }
  return nondiff("mul", table, kComplex64);
}

}  // namespace

RopeSettings rope_settings(const Config& c, const RopeDefaults& defaults) {
  const nlohmann::json* values = c.find({"rope_scaling", "rope_parameters"});
  const Config rope(c.source() + ": rope_parameters", values ? *values : nlohmann::json::object());
  if (rope.find({"full_attention", "sliding_attention"}))
    throw Error("[" + rope.source() + "] one set for each kind of layer is not supported", "give one set for all layers");
  RopeSettings s;
  s.type = rope.text({"rope_type", "type"}, "default");
  if (std::find(defaults.types.begin(), defaults.types.end(), s.type) == defaults.types.end())
    throw Error("[" + rope.source() + "] rope_type '" + s.type + "' is not known", "known: " + join(defaults.types, ", "));
  s.dim = defaults.head_dim;
  const double part =
      rope.number({"partial_rotary_factor"}, c.number({defaults.partial_key}, defaults.partial_rotary_factor.value_or(1.0)));
  if (defaults.partial_rotary_factor)
    s.dim = static_cast<int64_t>(static_cast<double>(defaults.head_dim) * part);
  else if (part != 1.0 && s.type != "default" && s.type != "proportional")
    throw Error("[" + rope.source() + "] partial_rotary_factor is set, but this model rotates whole heads", "remove partial_rotary_factor");
  s.max_position_embeddings = c.size({"max_position_embeddings"}, defaults.max_position_embeddings);
  s.original_max_position_embeddings = rope.size({"original_max_position_embeddings"}, s.max_position_embeddings);
  const nlohmann::json* factor = rope.find({"factor"});
  s.whole_factor = factor && factor->is_number_integer();
  return s;
}

RotaryEmbedding::RotaryEmbedding(Module& parent, std::string_view name, const RopeSettings& s) : Module(parent, name), settings(s) {
  inv_freq = buffer("inv_freq", {frequencies_of(s)});
  original_inv_freq = buffer("original_inv_freq", {frequencies_of(s)});
}

// `if seq_len > limit:` on the device; recorded rows read a constant there.
bool RotaryEmbedding::is_longer(const Tensor& position_ids, int64_t limit) const {
  if (tape().dialect.item) return *tape().dialect.item != 0;
  return position_ids.size(-1) > limit;
}

// dynamic_rope_update: two kinds of frequencies follow the length of the sequence, which is read from the positions.
void RotaryEmbedding::update_frequencies(const Tensor& position_ids) {
  if (settings.type != "dynamic" && settings.type != "longrope") return;
  Tensor seq_len = filled(tape(), "max", {}, DType::int64);
  seq_len = nondiff("add", seq_len, DType::int64);
  compare_scalar("gt", seq_len);
  if (settings.type == "dynamic") {
    if (is_longer(position_ids, settings.max_position_embeddings)) {
      rebind_buffer(inv_freq, dynamic_frequencies(seq_len));
      max_seq_len_cached_ = seq_len;
    }
    compare_scalar("lt", seq_len);
    return;
  }
  rebind_buffer(inv_freq, is_longer(position_ids, settings.original_max_position_embeddings) ? longrope_frequencies() : original_inv_freq);
}

// base is scaled by the length, so it is a tensor too: 1 / base ** (arange / dim)
Tensor RotaryEmbedding::dynamic_frequencies(const Tensor& seq_len) const {
  Tensor longest;
  {
    const Tensor limit = filled(tape(), "empty", {}, DType::int64);
    longest = nondiff("maximum", seq_len, DType::int64);
  }
  Tensor base = nondiff("mul", longest, settings.whole_factor ? DType::int64 : DType::float32);
  for (const char* op : {"div", "sub", "pow", "mul"}) base = nondiff(op, base, DType::float32);
  Tensor freq = filled(tape(), "_to_copy", {frequencies_of(settings)}, DType::float32);
  for (const char* op : {"div", "pow"}) freq = nondiff(op, freq, DType::float32);
  return one_over(freq);
}

// 1 / (factors * base ** (arange / dim))
Tensor RotaryEmbedding::longrope_frequencies() const {
  const Tensor ext_factors = filled(tape(), "empty", {frequencies_of(settings)}, DType::float32);
  Tensor freq = arange(tape(), frequencies_of(settings));
  for (const char* op : {"_to_copy", "div"}) freq = nondiff(op, freq, DType::float32);
  const Tensor inv_freq_shape = freq;
  for (const char* op : {"pow", "mul"}) freq = nondiff(op, freq, DType::float32);
  return one_over(freq);
}

CosSin RotaryEmbedding::operator()(const Tensor& x, const Tensor& position_ids) {
  Forward here(*this);
  GradGuard no_grad(tape(), false);
  if (is_wrapped_layer(*this)) build().hooks->before_forward(*this, {});
  update_frequencies(position_ids);
  const Tensor frequencies = expand(view(inv_freq, {1, -1, 1}), {position_ids.size(0), -1, 1});
  const Tensor positions = to(unsqueeze(position_ids, 1), DType::float32);
  AutocastGuard fp32(tape(), std::nullopt);
  const Tensor freqs = transpose(matmul(frequencies, positions), 1, 2);  // (1, T, D/2)
  if (settings.complex) return {polar(freqs), {}};
  const Tensor emb = settings.halved        ? freqs
                     : settings.interleaved ? repeat_interleave(freqs, 2, -1)
                                            : cat({freqs, freqs}, -1);  // (1, T, D)
  CosSin tables;
  tables.cos = mul_scalar(cos(emb));
  tables.sin = mul_scalar(sin(emb));
  if (settings.fp32_tables) return tables;
  return {to(tables.cos, x.dtype()), to(tables.sin, x.dtype())};
}

Tensor rotate_half(const Tensor& x) {
  const int64_t half = x.size(-1) / 2;
  const Tensor x1 = slice(x, -1, 0, half), x2 = slice(x, -1, half, x.size(-1));
  const Tensor minus = neg(x2);
  return cat({minus, x1}, -1);
}

Tensor rotate_every_two(const Tensor& x) {
  const int64_t n = x.size(-1);
  const Tensor x1 = slice(x, -1, 0, n, 2), x2 = slice(x, -1, 1, n, 2);
  const Tensor minus = neg(x2);
  return flatten(stack({minus, x1}, -1), -2);
}

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor straight = mul(x, cos);
  const Tensor turned = mul(rotate_half(x), sin);
  return add(straight, turned);
}

Tensor rotate_neighbours(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor straight = mul(x, cos);
  const Tensor turned = mul(rotate_every_two(x), sin);
  return add(straight, turned);
}

Tensor rotate_pair(const Tensor& first, const Tensor& second, const Tensor& cos, const Tensor& sin) {
  Tensor turned[2];
  {
    const Tensor straight = mul(first, cos), across = mul(second, sin);
    turned[0] = sub(straight, across);
  }
  {
    const Tensor straight = mul(second, cos), across = mul(first, sin);
    turned[1] = add(straight, across);
  }
  return cat({turned[0], turned[1]}, -1);
}

Tensor in_complex_pairs(const Tensor& x) {
  const Tensor wide = to(x, DType::float32);
  Dims pairs = x.sizes();
  pairs[-1] /= 2;
  pairs.push_back(2);
  return view_as_complex(reshape(wide, pairs));
}

std::pair<Tensor, Tensor> apply_rotary_pos_emb(const Tensor& q, const Tensor& k, const CosSin& tables) {
  const Tensor cos = unsqueeze(tables.cos, 1), sin = unsqueeze(tables.sin, 1);
  Tensor q_embed = rotate(q, cos, sin);
  Tensor k_embed = rotate(k, cos, sin);
  return {q_embed, k_embed};
}

}  // namespace plimsoll
