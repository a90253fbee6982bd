#include "model/decoder/megatron_parts.h"
#include "ops/flash_attention_2.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll::megatron {

ParallelLinear::ParallelLinear(Module& parent, std::string_view name, const Shared& shared, Kind kind, int64_t in, int64_t out,
                               bool with_bias, bool adds_bias)
    : Module(parent, name), shared(shared), kind(kind), adds_bias(adds_bias) {
  const int64_t ranks = kind == Kind::whole ? 1 : shared.settings.tensor;
  const int64_t rows = kind == Kind::row ? out : out / ranks, columns = kind == Kind::row ? in / ranks : in;
  if (kind == Kind::norm_column) {
    norm.weight = parameter("layer_norm_weight", {in});
    if (!shared.config.rms) norm.bias = parameter("layer_norm_bias", {in});
  }
  weight = parameter("weight", {rows, columns});
  if (with_bias) bias = parameter("bias", {rows});
}

Tensor ParallelLinear::operator()(const Tensor& x) const {
  Forward in(*this);
  const Tensor added = adds_bias ? bias : Tensor();
  switch (kind) {
    case Kind::norm_column:
      if (shared.settings.local) return column_linear(te_norm(x, norm), weight, added, shared.share(), true);
      return norm_linear(x, norm, weight, added, shared.share());
    case Kind::column: return column_linear(x, weight, added, shared.share(), false);
    case Kind::row: return row_linear(x, weight, added, shared.share());
    case Kind::whole: return column_linear(x, weight, added, shared.whole(), false);
  }
  return {};
}

namespace {

// Transformer Engine's unfused attention with a mask of padding: get_full_mask makes a mask for every query and key anew in each layer, and
// masked_fill, which keeps it, takes padding out of the softmax's result. (batch x heads, tokens, keys)
Tensor without_padding(const Tensor& probabilities, int64_t batch) {
  const int64_t rows = probabilities.size(0), tokens = probabilities.size(1), keys = probabilities.size(2);
  const Tensor mask = empty(probabilities.tape(), {batch, 1, tokens, keys}, DType::bool_);
  const Tensor masked = masked_fill(view(probabilities, {batch, rows / batch, tokens, keys}), mask);
  return view(masked, {rows, tokens, keys});
}

// Every row of scores exists: baddbmm into a buffer, softmax, dropout, bmm. (tokens, batch, heads, width).
Tensor unfused_attention(const Shared& shared, const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t tokens = q.size(0), keys = k.size(0), rows = q.size(1) * q.size(2), width = q.size(-1);
  const bool grouped = k.size(2) != q.size(2);
  const Tensor many_k = grouped ? repeat_interleave(k, q.size(2) / k.size(2), 2) : k;
  const Tensor many_v = grouped ? repeat_interleave(v, q.size(2) / v.size(2), 2) : v;
  const Tensor left = transpose(reshape(q, {tokens, rows, width}), 0, 1);
  const Tensor right = transpose(transpose(reshape(many_k, {keys, rows, width}), 0, 1), 1, 2);
  Tensor scores;
  {
    const Tensor buffer = shared.settings.local ? shared.buffers.global("mpu", {rows, tokens, keys}, q.dtype())
                                                : empty(q.tape(), {rows, tokens, keys}, q.dtype());
    scores = baddbmm(buffer, left, right);
  }
  Tensor probabilities = softmax(scores);  // the fused kernel: scale and causal mask in one
  scores.reset();
  if (shared.config.kind == MegatronKind::bert && !shared.settings.local) probabilities = without_padding(probabilities, q.size(1));
  probabilities = dropout(probabilities, shared.config.attention_dropout);
  const Tensor context = bmm(probabilities, transpose(reshape(many_v, {keys, rows, v.size(-1)}), 0, 1));
  const Tensor ordered = permute(view(context, {q.size(1), q.size(2), tokens, v.size(-1)}), {2, 0, 1, 3});
  return reshape(contiguous(ordered), {tokens, q.size(1), q.size(2) * v.size(-1)});
}

// flash-attention wants the batch first.
Tensor flash(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto batch_first = [](const Tensor& t) { return contiguous(transpose(t, 0, 1)); };
  const Tensor bq = batch_first(q), bk = batch_first(k), bv = batch_first(v);
  const int64_t pad = q.size(-1) - v.size(-1);
  Tensor out = flash_attention_2(bq, bk, pad > 0 ? constant_pad_nd(bv, {0, pad}) : bv, true);
  if (pad > 0) out = contiguous(slice(out, -1, 0, v.size(-1)));
  return contiguous(transpose(reshape(out, {out.size(0), out.size(1), out.size(2) * out.size(3)}), 0, 1));
}

// Keys and values go round the ranks; a buffer for each lives until the last has been used.
Tensor ring(const Shared& shared, const Tensor& q, const Tensor& k, const Tensor& v) {
  Tensors buffers;
  for (int64_t i = 1; i < shared.settings.context; ++i)
    for (const Tensor* t : {&k, &v}) buffers.push_back(empty(t->tape(), t->sizes(), t->dtype()));
  return shared.settings.attention == MegatronAttention::flash
             ? flash(q, k, v)
             : reshape(fused_attention(q, k, v), {q.size(0), q.size(1), q.size(2) * v.size(-1)});
}

}  // namespace

Tensor attend(const Shared& shared, const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t ranks = shared.settings.context;
  if (ranks > 1 && !shared.settings.all_to_all) return ring(shared, q, k, v);
  const Tensor wq = exchange_heads(q, ranks, false), wk = exchange_heads(k, ranks, false), wv = exchange_heads(v, ranks, false);
  Tensor out;
  switch (shared.settings.attention) {
    case MegatronAttention::flash: out = flash(wq, wk, wv); break;
    case MegatronAttention::unfused: out = unfused_attention(shared, wq, wk, wv); break;
    case MegatronAttention::fused: {
      const Tensor heads = fused_attention(wq, contiguous(wk), contiguous(wv));
      out = reshape(heads, {heads.size(0), heads.size(1), heads.size(2) * heads.size(3)});
    }
  }
  if (ranks == 1) return out;
  const Tensor back = exchange_heads(view(out, {out.size(0), out.size(1), wq.size(2), v.size(-1)}), ranks, true);
  return view(back, {back.size(0), back.size(1), back.size(2) * back.size(3)});
}

SelfAttention::SelfAttention(Module& parent, std::string_view name, const Shared& shared)
    : Module(parent, name),
      shared_(shared),
      heads_(shared.config.heads / shared.settings.tensor),
      groups_(std::max<int64_t>(1, shared.config.groups / shared.settings.tensor)),
      linear_qkv_(*this, "linear_qkv", shared, ParallelLinear::Kind::norm_column, shared.config.hidden,
                  (shared.config.heads + 2 * std::max(shared.config.groups, shared.settings.tensor)) * shared.config.channels,
                  shared.config.qkv_bias, true),
      linear_proj_(*this, "linear_proj", shared, ParallelLinear::Kind::row, shared.config.heads * shared.config.channels,
                   shared.config.hidden, shared.config.bias, false) {
  if (!shared.config.qk_norm) return;
  q_norm_ = std::make_unique<Norm>(*this, "q_layernorm", shared.config.channels, shared.config.rms);
  k_norm_ = std::make_unique<Norm>(*this, "k_layernorm", shared.config.channels, shared.config.rms);
}

Tensor SelfAttention::core(const Tensor& mixed) const {
  const int64_t tokens = mixed.size(0), batch = mixed.size(1), width = shared_.config.channels, each = heads_ / groups_;
  const Tensor in_groups = view(mixed, {tokens, batch, groups_, (each + 2) * width});
  const bool plain = each == 1 && !shared_.config.rope && !q_norm_ && shared_.settings.context == 1;
  if (plain && shared_.settings.attention == MegatronAttention::fused)
    return reshape(fused_attention_packed(in_groups, width), {tokens, batch, heads_ * width});
  const Tensors parts = split_along_last(in_groups, {each * width, width, width});
  Tensor q = reshape(parts[0], {tokens, batch, heads_, width}), k = parts[1];
  if (q_norm_) q = (*q_norm_)(q);
  if (k_norm_) k = (*k_norm_)(k);
  if (shared_.config.rope) {
    q = fused_rotary(q);
    k = fused_rotary(k);
  }
  return attend(shared_, q, k, parts[2]);
}

Biased SelfAttention::operator()(const Tensor& x) const {
  Forward in(*this);
  const Tensor mixed = linear_qkv_(x);
  const Tensor context = core(mixed);
  return {linear_proj_(context), linear_proj_.bias};
}

namespace {
using Kind = ParallelLinear::Kind;
}

CrossAttention::CrossAttention(Module& parent, std::string_view name, const Shared& shared)
    : Module(parent, name),
      shared_(shared),
      heads_(shared.config.heads / shared.settings.tensor),
      linear_q_(*this, "linear_q", shared, Kind::column, shared.config.hidden, shared.config.heads * shared.config.channels,
                shared.config.qkv_bias, true),
      linear_kv_(*this, "linear_kv", shared, Kind::column, shared.config.hidden, 2 * shared.config.heads * shared.config.channels,
                 shared.config.qkv_bias, true),
      linear_proj_(*this, "linear_proj", shared, Kind::row, shared.config.heads * shared.config.channels, shared.config.hidden,
                   shared.config.bias, false) {}

Biased CrossAttention::operator()(const Tensor& x, const Tensor& encoded) const {
  Forward in(*this);
  const int64_t width = shared_.config.channels, batch = x.size(1);
  const Tensors kv = split_along_last(view(linear_kv_(encoded), {encoded.size(0), batch, heads_, 2 * width}), {width, width});
  const Tensor q = view(linear_q_(x), {x.size(0), batch, heads_, width});
  return {linear_proj_(attend(shared_, q, kv[0], kv[1])), linear_proj_.bias};
}

LatentAttention::LatentAttention(Module& parent, std::string_view name, const Shared& shared)
    : Module(parent, name),
      shared_(shared),
      heads_(shared.config.heads / shared.settings.tensor),
      input_layernorm_(*this, "input_layernorm", shared.config.hidden, shared.config.rms),
      linear_kv_down_proj_(*this, "linear_kv_down_proj", shared, Kind::whole, shared.config.hidden,
                           shared.config.kv_rank + shared.config.rope_width, false, true),
      linear_kv_up_proj_(*this, "linear_kv_up_proj", shared, Kind::norm_column, shared.config.kv_rank,
                         shared.config.heads * (shared.config.channels + shared.config.value_width), false, true),
      linear_proj_(*this, "linear_proj", shared, Kind::row, shared.config.heads * shared.config.value_width, shared.config.hidden,
                   shared.config.bias, false) {
  const MegatronConfig& c = shared.config;
  const int64_t queries = c.heads * (c.channels + c.rope_width);
  if (c.q_rank == 0) {
    linear_q_proj_ = std::make_unique<ParallelLinear>(*this, "linear_q_proj", shared, Kind::column, c.hidden, queries, false, true);
    return;
  }
  linear_q_down_proj_ = std::make_unique<ParallelLinear>(*this, "linear_q_down_proj", shared, Kind::whole, c.hidden, c.q_rank, false, true);
  linear_q_up_proj_ =
      std::make_unique<ParallelLinear>(*this, "linear_q_up_proj", shared, Kind::norm_column, c.q_rank, queries, false, true);
}

Biased LatentAttention::operator()(const Tensor& x) const {
  Forward in(*this);
  const MegatronConfig& c = shared_.config;
  const Tensor hidden = input_layernorm_(x);
  Tensor q = linear_q_proj_ ? (*linear_q_proj_)(hidden) : (*linear_q_up_proj_)((*linear_q_down_proj_)(hidden));
  q = view(q, {q.size(0), q.size(1), heads_, c.channels + c.rope_width});
  const Tensors compressed = split(linear_kv_down_proj_(hidden), std::vector<int64_t>{c.kv_rank, c.rope_width}, -1);
  Tensor kv = linear_kv_up_proj_(contiguous(compressed[0]));
  kv = view(kv, {kv.size(0), kv.size(1), heads_, c.channels + c.value_width});
  const Tensors q_parts = split(q, std::vector<int64_t>{c.channels, c.rope_width}, -1);
  const Tensors kv_parts = split(kv, std::vector<int64_t>{c.channels, c.value_width}, -1);
  Tensor k_position = fused_rotary(unsqueeze(compressed[1], 2));
  if (shared_.settings.sequence && shared_.settings.tensor > 1) k_position = repeat_interleave(k_position, shared_.settings.tensor, 0);
  const Tensor query = cat({q_parts[0], fused_rotary(q_parts[1])}, -1);
  const Tensor key = cat({kv_parts[0], expand(k_position, {-1, -1, heads_, -1})}, -1);
  const Tensor context = attend(shared_, query, key, kv_parts[1]);
  return {linear_proj_(context), linear_proj_.bias};
}

}  // namespace plimsoll::megatron
