#include "model/diffusion/fsdm_dit.h"

#include "model/diffusion/fsdm_encoder.h"
#include "nn/blocks.h"
#include "nn/vision.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

// jax.lax.stop_gradient: the same numbers, outside the graph.
Tensor stop_gradient(const Tensor& x) {
  GradGuard no_grad(x.tape(), false);
  Op op(x.tape(), "detach", {&x});
  return op.finish(detach(x), [](Tensors&, Needs) { return Tensors(1); });
}

// flax.linen.MultiHeadDotProductAttention
struct MultiHeadAttention : Module {
  MultiHeadAttention(Module& parent, std::string_view name, int64_t width, int64_t heads)
      : Module(parent, name),
        heads(heads),
        query(*this, "query", width, width),
        key(*this, "key", width, width),
        value(*this, "value", width, width),
        out(*this, "out", width, width) {}

  Tensor operator()(const Tensor& x, const Tensor& context) const {
    Forward here(*this);
    const int64_t b = x.size(0), n = x.size(1), m = context.size(1);
    const Tensor q = transpose(view(query(x), {b, n, heads, -1}), 1, 2);  // (B, H, T, D)
    const Tensor k = transpose(view(key(context), {b, m, heads, -1}), 1, 2);
    const Tensor v = transpose(view(value(context), {b, m, heads, -1}), 1, 2);
    const Tensor weights = softmax(scores(q, k));                                           // (B, H, T, M)
    const Tensor joined = reshape(transpose(matmul(weights, v), 1, 2), {b, n, x.size(2)});  // (B, T, C)
    return out(joined);
  }

  Tensor scores(const Tensor& q, const Tensor& k) const {
    const Tensor scaled = div_scalar(q);
    return matmul(scaled, transpose(k, -1, -2));
  }

  int64_t heads;
  Linear query, key, value, out;
};

Tensor fsdm_modulate(const Tensor& x, const Tensor& shift, const Tensor& scale) {
  Tensor y = add_scalar(unsqueeze(scale, 1));  // (B, 1, C)
  y = mul(x, y);
  return add(y, unsqueeze(shift, 1));
}

Tensor norm(const Tensor& x) { return layer_norm(x, 1, {}, {}); }

struct FsdmBlock : Module {
  FsdmBlock(Module& parent, std::string_view name, const FsdmConfig& c, bool with_context)
      : Module(parent, name), config(c), dropout(c.dropout) {
    if (with_context) {
      context_proj = std::make_unique<Linear>(*this, "context_proj", c.hdim, c.hidden_size);
      cross_attn = std::make_unique<MultiHeadAttention>(*this, "cross_attn", c.hidden_size, c.num_heads);
    }
    dense1 = std::make_unique<Linear>(*this, "dense1", c.hidden_size, c.mlp_dim);
    dense2 = std::make_unique<Linear>(*this, "dense2", c.mlp_dim, c.hidden_size);
  }

  // x: (B, patches, C), c: (B, C), context: (B, tokens, hdim)
  Tensor operator()(const Tensor& input, const Tensor& c, const Tensor& context) const {
    Forward here(*this);
    const Tensors m = chunk(adaln(silu(c)), 6, -1);  // shift, scale and gate of the attention, the same of the MLP: (B, C)
    Tensor x = attend(input, m);
    if (cross_attn) x = look_at(x, context);
    Tensor y = norm(x);
    y = fsdm_modulate(y, m[3], m[4]);
    y = (*dense1)(y);  // (B, patches, mlp_dim)
    y = gelu(y);
    y = plimsoll::dropout(y, dropout);
    Tensor out = (*dense2)(y);  // (B, patches, C)
    out = mul(unsqueeze(m[5], 1), out);
    return add(x, out);
  }

  Tensor attend(const Tensor& x, const Tensors& m) const {
    Tensor y = norm(x);
    y = fsdm_modulate(y, m[0], m[1]);
    y = self_attn(y, y);
    y = mul(unsqueeze(m[2], 1), y);
    y = plimsoll::dropout(y, dropout);
    return add(x, y);
  }

  Tensor look_at(const Tensor& x, const Tensor& context) const {
    Tensor y = norm(x);
    y = (*cross_attn)(y, (*context_proj)(context));
    y = plimsoll::dropout(y, dropout);
    return add(x, y);
  }

  const FsdmConfig& config;
  double dropout;
  Linear adaln{*this, "adaln", config.hidden_size, checked_mul(6, config.hidden_size)};
  MultiHeadAttention self_attn{*this, "self_attn", config.hidden_size, config.num_heads};
  std::unique_ptr<Linear> context_proj;
  std::unique_ptr<MultiHeadAttention> cross_attn;
  std::unique_ptr<Linear> dense1, dense2;
};

struct FinalLayer : Module {
  FinalLayer(Module& parent, std::string_view name, const FsdmConfig& c) : Module(parent, name), config(c) {}

  Tensors modulation(const Tensor& c) const { return chunk(adaln(silu(c)), 2, -1); }  // shift and scale: (B, C)

  Tensor operator()(const Tensor& x, const Tensors& m) const {
    Forward here(*this);
    Tensor y = norm(x);
    y = fsdm_modulate(y, m[0], m[1]);
    return dense(y);  // (B, patches, patch_size^2 * 3)
  }

  const FsdmConfig& config;
  Linear adaln{*this, "adaln", config.hidden_size, 2 * config.hidden_size};
  Linear dense{*this, "dense", config.hidden_size, checked_mul(checked_mul(config.patch_size, config.patch_size), 3)};
};

}  // namespace

struct FsdmDiT::Parts {
  Parts(Module& dit, const FsdmConfig& c)
      : patch_embed(dit, "patch_embed", 3, c.hidden_size, {.kernel = c.patch_size, .stride = c.patch_size}),
        t_embedder(dit, "t_embedder", 256, c.hidden_size),
        blocks(dit, "blocks"),
        final_layer(add_blocks(dit, c), "final_layer", c) {}

  Module& add_blocks(Module& dit, const FsdmConfig& c) {
    for (int64_t i = 0; i < c.depth; ++i) blocks.add(c, c.cross_attn_blocks.contains(i));
    return dit;
  }

  Conv2d patch_embed;
  FsdmTimeEmbed t_embedder;
  ModuleList<FsdmBlock> blocks;
  FinalLayer final_layer;
};

FsdmDiT::FsdmDiT(Module& parent, std::string_view name, const FsdmConfig& config)
    : Module(parent, name),
      config_(config),
      pos_embed_(parameter("pos_embed", {1, config.patches(), config.hidden_size})),
      parts_(std::make_unique<Parts>(*this, config)) {}

FsdmDiT::~FsdmDiT() = default;

Tensor FsdmDiT::operator()(const Tensor& images, const Tensor& t, const Tensor& context) {
  Forward here(*this);
  const int64_t b = images.size(0), p = config_.patch_size, g = config_.grid;
  Tensor x = add(transpose(flatten(parts_->patch_embed(images), 2), 1, 2), stop_gradient(pos_embed_));  // (B, patches, C)
  const Tensor c = parts_->t_embedder(t);                                                               // (B, C)
  for (const FsdmBlock& block : parts_->blocks) {
    auto run = [&block](const Tensors& in) { return Tensors{block(in[0], in[1], in[2])}; };
    const Tensors inputs{x, c, context};
    x = (config_.use_remat ? checkpoint(tape(), checkpoint_style(block), run, inputs) : run_block(block, run, inputs)).front();
  }
  const Tensors m = parts_->final_layer.modulation(c);
  x = parts_->final_layer(x, m);
  return reshape(permute(view(x, {b, g, g, p, p, 3}), {0, 5, 1, 3, 2, 4}), {b, 3, g * p, g * p});
}

}  // namespace plimsoll
