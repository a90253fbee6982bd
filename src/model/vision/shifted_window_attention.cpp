#include "model/vision/shifted_window_attention.h"

#include "ops/copy_slices.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "util/checked.h"

namespace plimsoll {

namespace {

// x[:, :height, :width, :], where a slice that takes everything is no slice.
Tensor crop(const Tensor& x, int64_t height, int64_t width) {
  Tensor out = x;
  if (height < x.size(1)) out = slice(out, 1, 0, height);
  if (width < x.size(2)) out = slice(out, 2, 0, width);
  return out;
}

// torch.nn.functional.normalize over the last dimension
Tensor normalize(const Tensor& x) {
  Tensor denom;  // one number a row, seen in the shape of x
  {
    const Tensor norm = vector_norm(x, {-1});
    denom = expand(clamp_min(norm), x.sizes());
  }
  return div(x, denom);
}

}  // namespace

ShiftedWindowAttention::CoordinateMLP::CoordinateMLP(Module& parent, std::string_view name, int64_t num_heads)
    : Module(parent, name), hidden(*this, "0", 2, 512), head(*this, "2", 512, num_heads, false) {}

Tensor ShiftedWindowAttention::CoordinateMLP::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor input = hidden(x);  // (1, 2h - 1, 2w - 1, 512)
  input = relu_on_view_(input);
  return head(input);  // (1, 2h - 1, 2w - 1, heads)
}

ShiftedWindowAttention::ShiftedWindowAttention(Module& parent, std::string_view name, const WindowAttentionConfig& c)
    : Module(parent, name), config_(c), qkv_(*this, "qkv", c.dim, 3 * c.dim), proj_(*this, "proj", c.dim, c.dim) {
  const int64_t positions = checked_mul(c.window.h, c.window.w), span_h = 2 * c.window.h - 1, span_w = 2 * c.window.w - 1;
  relative_position_index_ = buffer("relative_position_index", {checked_mul(positions, positions)}, DType::int64);
  if (c.v2) {
    relative_coords_table_ = buffer("relative_coords_table", {1, span_h, span_w, 2}, build().dtype);
    logit_scale_ = parameter("logit_scale", {c.num_heads, 1, 1});
    cpb_mlp_ = std::make_unique<CoordinateMLP>(*this, "cpb_mlp", c.num_heads);
  } else {
    relative_position_bias_table_ = parameter("relative_position_bias_table", {checked_mul(span_h, span_w), c.num_heads});
  }
}

Tensor ShiftedWindowAttention::bias_from_table(const Tensor& table) const {
  const int64_t positions = config_.window.h * config_.window.w;
  Tensor bias = index(table, relative_position_index_);       // (N * N, heads), N = h * w
  bias = view(bias, {positions, positions, -1});              // (N, N, heads)
  bias = unsqueeze(contiguous(permute(bias, {2, 0, 1})), 0);  // (1, heads, N, N)
  return bias;
}

Tensor ShiftedWindowAttention::relative_position_bias() const {
  if (!config_.v2) return bias_from_table(relative_position_bias_table_);
  Tensor bias;  // (1, heads, N, N)
  {
    const Tensor table = view((*cpb_mlp_)(relative_coords_table_), {-1, config_.num_heads});
    bias = bias_from_table(table);
  }
  bias = mul_scalar(sigmoid(bias));
  return bias;
}

// q, k: (windows, heads, N, D). The first version scales q, which the caller holds on to.
Tensor ShiftedWindowAttention::scores(Tensor& q, const Tensor& k, Tensor& scale) const {
  if (!config_.v2) {
    q = mul_scalar(q);
    return matmul(q, transpose(k, -2, -1));  // (windows, heads, N, N)
  }
  Tensor attn;  // (windows, heads, N, N)
  {
    const Tensor left = normalize(q), right = normalize(k);
    attn = matmul(left, transpose(right, -2, -1));
  }
  scale = exp(clamp_max(logit_scale_));  // (heads, 1, 1)
  return mul(attn, scale);
}

// Positions that only the cyclic shift has brought together do not see each other: 0 or -100 for every pair of a window.
Tensor ShiftedWindowAttention::shift_mask(const Tensor& x, int64_t height, int64_t width) const {
  const WindowSize& window = config_.window;
  Tensor mask = filled(tape(), "new_zeros", {height, width}, x.dtype());
  mask = view(mask, {height / window.h, window.h, width / window.w, window.w});
  mask = reshape(permute(mask, {0, 2, 1, 3}), {-1, window.h * window.w});  // (windows of one image, N)
  mask = sub(unsqueeze(mask, 1), unsqueeze(mask, 2));                      // (windows of one image, N, N)
  Tensor filled_once;
  {
    const Tensor apart = compare_scalar("ne", mask);
    filled_once = nondiff("masked_fill", mask, mask.dtype());
  }
  const Tensor together = compare_scalar("eq", mask);
  return nondiff("masked_fill", filled_once, mask.dtype());
}

// shifted_window_attention
Tensor ShiftedWindowAttention::attend(const Tensor& input, const Tensor& bias) const {
  const auto [window_h, window_w] = config_.window;
  const int64_t b = input.size(0), h = input.size(1), w = input.size(2), c = input.size(3), positions = window_h * window_w;
  const int64_t pad_h = round_up(h, window_h), pad_w = round_up(w, window_w);
  Tensor x = constant_pad_nd(input, {0, 0, 0, pad_w - w, 0, pad_h - h});  // (B, pad_h, pad_w, C)
  const int64_t shift_h = window_h >= pad_h ? 0 : config_.shift.h, shift_w = window_w >= pad_w ? 0 : config_.shift.w;
  const bool shifted = shift_h + shift_w > 0;
  if (shifted) x = roll(x, {-shift_h, -shift_w}, {1, 2});

  const int64_t rows = pad_h / window_h, columns = pad_w / window_w, windows = b * rows * columns;
  x = view(x, {b, rows, window_h, columns, window_w, c});
  x = reshape(permute(x, {0, 1, 3, 2, 4, 5}), {windows, positions, c});  // (windows, N, C)

  Tensor qkv_bias = qkv_.bias;
  if (config_.v2) {  // keys have no bias
    qkv_bias = clone(qkv_bias);
    qkv_bias = zero_slice_(qkv_bias, c, 2 * c);
  }
  Tensor qkv = linear(x, qkv_.weight, qkv_bias);  // (windows, N, 3C)
  qkv = permute(reshape(qkv, {windows, positions, 3, config_.num_heads, c / config_.num_heads}), {2, 0, 3, 1, 4});
  Tensor q = select(qkv, 0, 0);  // (windows, heads, N, D)
  const Tensor k = select(qkv, 0, 1), v = select(qkv, 0, 2);
  Tensor scale;
  Tensor attn = scores(q, k, scale);  // (windows, heads, N, N)
  attn = add(attn, bias);
  Tensor attn_mask;
  if (shifted) {
    attn_mask = shift_mask(x, pad_h, pad_w);  // (windows of one image, N, N)
    attn = view(attn, {b, rows * columns, config_.num_heads, positions, positions});
    attn = add(attn, unsqueeze(unsqueeze(attn_mask, 1), 0));
    attn = view(attn, {-1, config_.num_heads, positions, positions});
  }
  attn = softmax(attn);
  attn = dropout(attn, config_.attention_dropout);
  {
    const Tensor out = matmul(attn, v);                          // (windows, heads, N, D)
    x = reshape(transpose(out, 1, 2), {windows, positions, c});  // (windows, N, C)
  }
  x = linear(x, proj_.weight, proj_.bias);
  x = dropout(x, config_.dropout);

  x = view(x, {b, rows, columns, window_h, window_w, c});
  x = reshape(permute(x, {0, 1, 3, 2, 4, 5}), {b, pad_h, pad_w, c});  // (B, pad_h, pad_w, C)
  if (shifted) x = roll(x, {shift_h, shift_w}, {1, 2});
  x = contiguous(crop(x, h, w));  // (B, H, W, C)
  return x;
}

Tensor ShiftedWindowAttention::operator()(const Tensor& x) const {
  Forward here(*this);
  const Tensor bias = relative_position_bias();  // (1, heads, N, N)
  return attend(x, bias);
}

}  // namespace plimsoll
