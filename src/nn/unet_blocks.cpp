#include "nn/unet_blocks.h"

#include "nn/transformer.h"
#include "ops/attention.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"
#include "ops/upsample.h"

namespace plimsoll {

namespace {
constexpr Conv2dOptions kSame{.kernel = 3, .padding = 1};
}

GroupNorm::GroupNorm(Module& parent, std::string_view name, int64_t g, int64_t channels) : Module(parent, name), groups(g) {
  if (channels % g != 0)
    throw Error("[group_norm] " + std::to_string(g) + " groups do not divide " + std::to_string(channels) + " channels",
                "choose norm_num_groups so that it divides every number of channels");
  weight = parameter("weight", {channels});
  bias = parameter("bias", {channels});
}

Tensor GroupNorm::operator()(const Tensor& x) const {
  Forward here(*this);
  return group_norm(x, groups, weight, bias);
}

// ---- convolutions ---------------------------------------------------------------------------------------------------

std::unique_ptr<Linear> ResnetBlock2D::make_time_emb_proj() {
  if (!settings.temb_channels) return nullptr;
  return std::make_unique<Linear>(*this, "time_emb_proj", *settings.temb_channels, settings.scale_shift ? 2 * settings.out : settings.out);
}

std::unique_ptr<Conv2d> ResnetBlock2D::make_shortcut() {
  if (settings.in == settings.out) return nullptr;
  return std::make_unique<Conv2d>(*this, "conv_shortcut", settings.in, settings.out, Conv2dOptions{});
}

Tensor ResnetBlock2D::operator()(const Tensor& input, const Tensor& time) const {
  Forward here(*this);
  Tensor input_tensor = input, temb = time;
  Tensor hidden = norm1(input_tensor);  // (N, in, H, W)
  hidden = activation(settings.act, hidden);
  hidden = conv1(hidden);  // (N, out, H, W)
  if (time_emb_proj) {
    temb = activation(settings.act, temb);
    temb = unsqueeze(unsqueeze((*time_emb_proj)(temb), 2), 3);  // (N, out, 1, 1)
  }
  if (settings.scale_shift) {
    const Tensors scale_and_shift = chunk(temb, 2, 1);
    hidden = norm2(hidden);
    hidden = add(mul(hidden, add_scalar(scale_and_shift[0])), scale_and_shift[1]);
  } else {
    if (temb) hidden = add(hidden, temb);
    hidden = norm2(hidden);
  }
  hidden = activation(settings.act, hidden);
  hidden = dropout(hidden);
  hidden = conv2(hidden);
  if (conv_shortcut) {
    if (tape().training) input_tensor = contiguous(input_tensor);
    input_tensor = (*conv_shortcut)(input_tensor);
  }
  const Tensor sum = add(input_tensor, hidden);
  return div_scalar(sum);
}

Tensor run_resnet(const ResnetBlock2D& resnet, const Tensor& hidden_states, const Tensor& temb) {
  const auto run = [&resnet](const Tensors& in) -> Tensors { return {resnet(in[0], in[1])}; };
  return std::move(run_block(resnet, run, Tensors{hidden_states, temb})[0]);
}

Downsample2D::Downsample2D(Module& parent, std::string_view name, int64_t channels, int64_t padding)
    : Module(parent, name), conv(*this, "conv", channels, channels, {.kernel = 3, .stride = 2, .padding = padding}) {}

Tensor Downsample2D::operator()(const Tensor& x) const {
  Forward here(*this);
  if (conv.options.padding.h > 0) return conv(x);
  const Tensor padded = constant_pad_nd(x, {0, 1, 0, 1});
  return conv(padded);
}

Upsample2D::Upsample2D(Module& parent, std::string_view name, int64_t channels)
    : Module(parent, name), conv(*this, "conv", channels, channels, kSame) {}

Tensor Upsample2D::operator()(const Tensor& x, int64_t height, int64_t width) const {
  Forward here(*this);
  const Tensor larger = upsample_nearest2d(x, height, width);  // (N, C, height, width)
  return conv(larger);
}

// ---- attention ------------------------------------------------------------------------------------------------------

bool uses_xformers(const Config& config) { return config.flag({"enable_xformers_memory_efficient_attention"}, false); }

Tensor ImageAttention::head_to_batch_dim(const Tensor& x) const {
  const int64_t n = x.size(0), tokens = x.size(1);
  const Tensor heads = permute(reshape(x, {n, tokens, settings.heads, -1}), {0, 2, 1, 3});
  return reshape(heads, {n * settings.heads, tokens, -1});
}

Tensor ImageAttention::batch_to_head_dim(const Tensor& x) const {
  const int64_t n = x.size(0) / settings.heads, tokens = x.size(1);
  const Tensor tokens_first = permute(reshape(x, {n, settings.heads, tokens, -1}), {0, 2, 1, 3});
  return reshape(tokens_first, {n, tokens, -1});
}

Tensor ImageAttention::get_attention_scores(const Tensor& q, const Tensor& k) const {
  const Tensor query = settings.upcast_attention ? to(q, DType::float32) : q, key = settings.upcast_attention ? to(k, DType::float32) : k;
  Tensor start = filled(tape(), "empty", {query.size(0), query.size(1), key.size(1)}, query.dtype());
  Tensor scores = baddbmm(start, query, transpose(key, -1, -2));  // (N H, T, K)
  start.reset();
  if (settings.upcast_softmax) scores = to(scores, DType::float32);
  Tensor probs = softmax(scores);
  scores.reset();
  probs = to(probs, q.dtype());
  return probs;
}

Tensor ImageAttention::operator()(const Tensor& x, const Tensor& encoder) const {
  Forward here(*this);
  Tensor hidden = x;
  if (x.dim() == 4) hidden = transpose(view(hidden, {x.size(0), x.size(1), -1}), 1, 2);  // (N, T, C)
  if (group_norm) hidden = transpose((*group_norm)(transpose(hidden, 1, 2)), 1, 2);
  Tensor query = to_q(hidden);  // (N, T, H D)
  const Tensor states = encoder ? encoder : hidden;
  Tensor key = to_k(states), value = to_v(states);  // (N, K, H D)
  Tensor probs;
  if (settings.xformers || build().eager()) {
    query = head_to_batch_dim(query);  // (N H, T, D)
    key = head_to_batch_dim(key);
    value = head_to_batch_dim(value);
    if (settings.xformers) {
      hidden = memory_efficient_attention(query, key, value);
    } else {
      probs = get_attention_scores(query, key);  // (N H, T, K)
      hidden = bmm(probs, value);                // (N H, T, D)
    }
    hidden = batch_to_head_dim(hidden);  // (N, T, H D)
  } else {
    for (Tensor* t : {&query, &key, &value}) *t = transpose(view(*t, {x.size(0), -1, settings.heads, settings.dim_head}), 1, 2);
    hidden = scaled_dot_product_attention(query, key, value, {});  // (N, H, T, D)
    hidden = reshape(transpose(hidden, 1, 2), {x.size(0), -1, settings.heads * settings.dim_head});
    hidden = to(hidden, query.dtype());
  }
  hidden = to_out_0(hidden);  // (N, T, C)
  if (x.dim() == 4) hidden = reshape(transpose(hidden, -1, -2), x.sizes());
  if (settings.residual_connection) hidden = add(hidden, x);
  hidden = div_scalar(hidden);
  return hidden;
}

// ---- transformers ---------------------------------------------------------------------------------------------------

GatedGelu::GatedGelu(Module& parent, std::string_view name, int64_t in, int64_t out)
    : Module(parent, name), proj(*this, "proj", in, 2 * out) {}

Tensor GatedGelu::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor hidden = proj(x);  // (N, T, 2 F)
  const Tensors halves = chunk(hidden, 2, -1);
  hidden = halves[0];
  const Tensor gate = gelu(halves[1]);
  return mul(hidden, gate);  // (N, T, F)
}

GatedFeedForward::GatedFeedForward(Module& parent, std::string_view name, int64_t width, double dropout)
    : Module(parent, name),
      net(*this, "net"),
      net_0(net, "0", width, 4 * width),
      net_1(net, "1", dropout),
      net_2(net, "2", 4 * width, width) {}

Tensor GatedFeedForward::operator()(const Tensor& x) const {
  Forward here(*this);
  Tensor hidden = net_0(x);  // (N, T, F)
  hidden = net_1(hidden);
  return net_2(hidden);  // (N, T, C)
}

namespace {

AttentionSettings attention_settings(const TransformerSettings& s, bool cross) {
  AttentionSettings a;
  a.query_dim = s.heads * s.dim_head;
  a.heads = s.heads;
  a.dim_head = s.dim_head;
  if (cross) a.cross_attention_dim = s.cross_attention_dim;
  a.upcast_attention = s.upcast_attention;
  a.xformers = s.xformers;
  return a;
}

}  // namespace

BasicTransformerBlock::BasicTransformerBlock(Module& parent, std::string_view name, const TransformerSettings& s)
    : Module(parent, name),
      only_cross_attention(s.only_cross_attention),
      norm1(*this, "norm1", s.heads * s.dim_head),
      attn1(*this, "attn1", attention_settings(s, s.only_cross_attention)),
      norm2(*this, "norm2", s.heads * s.dim_head),
      attn2(*this, "attn2", attention_settings(s, true)),
      norm3(*this, "norm3", s.heads * s.dim_head),
      ff(*this, "ff", s.heads * s.dim_head, s.dropout) {}

Tensor BasicTransformerBlock::operator()(const Tensor& x, const Tensor& encoder) const {
  Forward here(*this);
  Tensor norm_hidden = norm1(x);  // (N, T, C)
  Tensor attn_output = attn1(norm_hidden, only_cross_attention ? encoder : Tensor());
  Tensor hidden = add(attn_output, x);
  norm_hidden = norm2(hidden);
  attn_output = attn2(norm_hidden, encoder);
  hidden = add(attn_output, hidden);
  norm_hidden = norm3(hidden);
  const Tensor ff_output = ff(norm_hidden);
  hidden = add(ff_output, hidden);
  return hidden;
}

Transformer2DModel::Transformer2DModel(Module& parent, std::string_view name, const TransformerSettings& s)
    : Module(parent, name),
      settings_(s),
      norm_(*this, "norm", s.groups, s.channels),
      conv_in_(s.use_linear_projection ? nullptr : std::make_unique<Conv2d>(*this, "proj_in", s.channels, s.channels, Conv2dOptions{})),
      linear_in_(s.use_linear_projection ? std::make_unique<Linear>(*this, "proj_in", s.channels, s.channels) : nullptr),
      transformer_blocks_(*this, "transformer_blocks") {
  for (int64_t i = 0; i < s.layers; ++i) transformer_blocks_.add(s);
  if (s.use_linear_projection)
    linear_out_ = std::make_unique<Linear>(*this, "proj_out", s.channels, s.channels);
  else
    conv_out_ = std::make_unique<Conv2d>(*this, "proj_out", s.channels, s.channels, Conv2dOptions{});
}

Tensor Transformer2DModel::project_in(const Tensor& x) const {
  const Dims flat{x.size(0), x.size(2) * x.size(3), x.size(1)};
  Tensor hidden = norm_(x);  // (N, C, H, W)
  if (conv_in_) {
    hidden = (*conv_in_)(hidden);
    return reshape(permute(hidden, {0, 2, 3, 1}), flat);  // (N, T, C)
  }
  hidden = reshape(permute(hidden, {0, 2, 3, 1}), flat);  // (N, T, C)
  return (*linear_in_)(hidden);
}

Tensor Transformer2DModel::project_out(Tensor hidden, const Dims& sizes) const {
  const auto image = [&](const Tensor& x) {
    return contiguous(permute(reshape(x, {sizes[0], sizes[2], sizes[3], sizes[1]}), {0, 3, 1, 2}));
  };
  if (conv_out_) {
    hidden = image(hidden);  // (N, C, H, W)
    return (*conv_out_)(hidden);
  }
  hidden = (*linear_out_)(hidden);  // (N, T, C)
  return image(hidden);
}

Tensor Transformer2DModel::operator()(const Tensor& x, const Tensor& encoder) {
  Forward here(*this);
  Tensor hidden = project_in(x);  // (N, T, C)
  for (BasicTransformerBlock& block : transformer_blocks_) {
    const auto run = [&block](const Tensors& in) -> Tensors { return {block(in[0], in[1])}; };
    hidden = std::move(run_block(block, run, Tensors{hidden, encoder})[0]);
  }
  const Tensor out = project_out(hidden, x.sizes());  // (N, C, H, W)
  return add(out, x);
}

}  // namespace plimsoll
