#include "model/diffusion/fsdm_encoder.h"

#include "nn/blocks.h"
#include "ops/index.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// Sines and cosines of the steps t: (B) -> (B, dim)
Tensor fsdm_timestep_embedding(const Tensor& t, int64_t dim) {
  Tensor frequencies = arange(t.tape(), dim / 2, DType::float32);
  frequencies = mul_scalar(frequencies);
  frequencies = div_scalar(frequencies);
  frequencies = exp(frequencies);
  const Tensor angles = mul(unsqueeze(to(t, DType::float32), 1), unsqueeze(frequencies, 0));  // (B, dim / 2)
  const Tensor cosines = cos(angles), sines = sin(angles);
  return cat({cosines, sines}, -1);
}

// Locality self-attention: a learned temperature, and no token looks at itself.
struct LSA : Module {
  LSA(Module& parent, std::string_view name, const FsdmConfig& c)
      : Module(parent, name), config(c), heads(c.encoder_heads), dropout(c.dropout), temperature(parameter("temperature", {})) {}

  Tensor operator()(const Tensor& x) const {
    Forward here(*this);
    const int64_t b = x.size(0), n = x.size(1);
    const Tensor scale = exp(temperature);
    Tensors qkv = chunk(to_qkv(x), 3, -1);
    for (Tensor& part : qkv) part = transpose(view(part, {b, n, heads, -1}), 1, 2);  // (B, H, T, D)
    Tensor dots = mul(matmul(qkv[0], transpose(qkv[1], -1, -2)), scale);             // (B, H, T, T)
    dots = masked_fill(dots, filled(tape(), "eye", {n, n}, DType::bool_));
    const Tensor attention = plimsoll::dropout(softmax(dots), dropout);
    const Tensor out = reshape(transpose(matmul(attention, qkv[2]), 1, 2), {b, n, -1});  // (B, T, H * D)
    return plimsoll::dropout(to_out(out), dropout);
  }

  const FsdmConfig& config;
  int64_t heads;
  double dropout;
  Tensor temperature;
  Linear to_qkv{*this, "to_qkv", config.hdim, (checked_mul(3 * config.encoder_heads, config.encoder_dim_head)), false};
  Linear to_out{*this, "to_out", checked_mul(config.encoder_heads, config.encoder_dim_head), config.hdim};
};

struct EncoderLayer : Module {
  EncoderLayer(Module& parent, std::string_view name, const FsdmConfig& c) : Module(parent, name), config(c), dropout(c.dropout) {}

  Tensor operator()(const Tensor& input) const {
    Forward here(*this);
    Tensor x = norm1(input);  // (B, T, hdim)
    x = attn(x);
    x = add(input, x);
    Tensor y = norm2(x);
    y = dense1(y);  // (B, T, encoder_mlp_dim)
    y = gelu(y);
    y = plimsoll::dropout(y, dropout);
    Tensor out = dense2(y);  // (B, T, hdim)
    out = plimsoll::dropout(out, dropout);
    return add(x, out);
  }

  const FsdmConfig& config;
  double dropout;
  LayerNorm norm1{*this, "norm1", config.hdim};
  LSA attn{*this, "attn", config};
  LayerNorm norm2{*this, "norm2", config.hdim};
  Linear dense1{*this, "dense1", config.hdim, config.encoder_mlp_dim};
  Linear dense2{*this, "dense2", config.encoder_mlp_dim, config.hdim};
};

// Patches of all images of a set, stacked on their channels.
struct SPTStack : Module {
  SPTStack(Module& parent, std::string_view name, const FsdmConfig& c) : Module(parent, name), config(c) {}
  static int64_t width(const FsdmConfig& c) { return checked_mul(checked_mul(c.patch_size, c.patch_size), checked_mul(c.sample_size, 3)); }

  Tensor operator()(const Tensor& set) const {
    Forward here(*this);
    const int64_t b = set.size(0), channels = set.size(1) * set.size(2), p = config.patch_size, g = config.grid;
    Tensor x = reshape(transpose(set, 1, 2), {b, channels, set.size(3), set.size(4)});  // (B, 3 * sample_size, H, W)
    x = reshape(permute(view(x, {b, channels, g, p, g, p}), {0, 2, 4, 3, 5, 1}), {b, g * g, -1});
    x = norm(x);
    x = dense(x);  // (B, patches, hdim)
    return x;
  }

  const FsdmConfig& config;
  LayerNorm norm{*this, "norm", width(config)};
  Linear dense{*this, "dense", width(config), config.hdim};
};

}  // namespace

FsdmTimeEmbed::FsdmTimeEmbed(Module& parent, std::string_view name, int64_t frequencies, int64_t width)
    : Module(parent, name), frequencies(frequencies), dense1(*this, "dense1", frequencies, width), dense2(*this, "dense2", width, width) {}

Tensor FsdmTimeEmbed::operator()(const Tensor& t) const {
  Forward here(*this);
  Tensor x = fsdm_timestep_embedding(t, frequencies);
  x = dense1(x);  // (B, width)
  x = silu(x);
  return dense2(x);
}

struct FsdmEncoder::Parts {
  Parts(Module& encoder, const FsdmConfig& c)
      : dropout(c.dropout),
        patch_embed(encoder, "spt_stack", c),
        layers(encoder, "layers"),
        mlp_norm(add_layers(encoder, c), "mlp_norm", c.hdim),
        mlp_dense(encoder, "mlp_dense", c.hdim, c.hdim),
        to_time_embedding(encoder, "to_time_embedding", c.hdim, c.hdim) {}

  Module& add_layers(Module& encoder, const FsdmConfig& c) {
    for (int64_t i = 0; i < c.encoder_depth; ++i) layers.add(c);
    return encoder;
  }

  double dropout;
  SPTStack patch_embed;
  ModuleList<EncoderLayer> layers;
  LayerNorm mlp_norm;
  Linear mlp_dense, to_time_embedding;
};

FsdmEncoder::FsdmEncoder(Module& parent, std::string_view name, const FsdmConfig& config)
    : Module(parent, name),
      pos_embedding_(parameter("pos_embedding", {1, config.patches() + 2, config.hdim})),
      cls_token_(parameter("cls_token", {1, 1, config.hdim})),
      parts_(std::make_unique<Parts>(*this, config)) {}

FsdmEncoder::~FsdmEncoder() = default;

FsdmEncoder::Output FsdmEncoder::operator()(const Tensor& set, const Tensor& time) {
  Forward here(*this);
  const int64_t b = set.size(0), ns = set.size(1);
  Tensor x = parts_->patch_embed(set);                                                             // (B, patches, hdim)
  const Tensor time_token = getitem(view(parts_->to_time_embedding(time), {b, ns, -1}), 1, 0, 1);  // (B, 1, hdim)
  x = add(cat({expand(cls_token_, {b, -1, -1}), time_token, x}, 1), pos_embedding_);               // (B, T, hdim)
  x = dropout(x, parts_->dropout);
  for (EncoderLayer& layer : parts_->layers) {
    auto run = [&layer](const Tensor& h) { return layer(h); };
    x = run_block(layer, run, x);
  }
  Tensor pooled = parts_->mlp_norm(select(x, 1, 0));
  pooled = parts_->mlp_dense(pooled);
  return {pooled, slice(x, 1, 2, x.size(1))};
}

}  // namespace plimsoll
