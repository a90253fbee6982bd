// diffusers DiTTransformer2DModel: images of a class.
#include "model/family.h"
#include "nn/ada_norm.h"
#include "nn/denoiser.h"
#include "nn/diffusers_attention.h"
#include "nn/diffusers_layers.h"
#include "nn/diffusers_patches.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

struct DiTConfig {
  explicit DiTConfig(const Config& c)
      : heads(c.size({"num_attention_heads"}, 16)),
        head_dim(c.size({"attention_head_dim"}, 72)),
        width(checked_mul(heads, head_dim)),
        out_channels(c.size({"out_channels"}, c.size({"in_channels"}, 4))),
        num_layers(c.size({"num_layers"}, 28)),
        dropout(c.number({"dropout"}, 0.0)),
        attention_bias(c.flag({"attention_bias"}, true)),
        num_embeds_ada_norm(c.size({"num_embeds_ada_norm"}, 1000)),
        norm_elementwise_affine(c.flag({"norm_elementwise_affine"}, false)),
        patches(image_patches(c, width, 32)),
        activation(feed_forward_kind(c)) {
    if (const std::string norm = c.text({"norm_type"}, "ada_norm_zero"); norm != "ada_norm_zero")
      throw Error("[" + c.source() + "] norm_type '" + norm + "' is not one of DiT", "set norm_type to ada_norm_zero");
  }
  int64_t heads, head_dim, width, out_channels, num_layers;
  double dropout;
  bool attention_bias;
  int64_t num_embeds_ada_norm;
  bool norm_elementwise_affine;
  PatchEmbedSizes patches;
  FeedForwardKind activation;
};

// LabelEmbedding: a tenth of the labels is dropped in training, for which the table has one row more.
struct LabelEmbedding : Module {
  LabelEmbedding(Module& parent, std::string_view name, const DiTConfig& c)
      : Module(parent, name), embedding_table(*this, "embedding_table", c.num_embeds_ada_norm + 1, c.width) {}

  Tensor operator()(const Tensor& labels) const {
    Forward here(*this);
    return embedding_table(tape().training ? token_drop(labels) : labels);
  }

  static Tensor token_drop(const Tensor& labels) {
    Tape& tape = labels.tape();
    Tensor drop;
    {
      const Tensor chance = filled(tape, "rand", labels.sizes(), DType::float32);
      drop = compare_scalar("lt", chance);
    }
    const Tensor none = filled(tape, "scalar_tensor", {}, DType::int64);
    return where(drop, none, labels);
  }

  Embedding embedding_table;
};

struct CombinedTimestepLabelEmbeddings : Module {
  CombinedTimestepLabelEmbeddings(Module& parent, std::string_view name, const DiTConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& timestep, const Tensor& labels, DType dtype) const {
    Forward here(*this);
    const Tensor timesteps_proj = time_proj(timestep);
    const Tensor timesteps_emb = timestep_embedder(to(timesteps_proj, dtype));
    const Tensor classes = class_embedder(labels);
    return add(timesteps_emb, classes);  // (B, C)
  }

  const DiTConfig& config;
  Timesteps time_proj{*this, "time_proj", 256};
  TimestepEmbedding timestep_embedder{*this, "timestep_embedder", 256, config.width};
  LabelEmbedding class_embedder{*this, "class_embedder", config};
};

// AdaLayerNormZero with an embedding of time and class of its own.
struct ClassNorm : Module {
  ClassNorm(Module& parent, std::string_view name, const DiTConfig& c) : Module(parent, name), config(c) {}

  Tensors operator()(const Tensor& x, const Tensor& timestep, const Tensor& labels) const {
    Forward here(*this);
    Tensor embedded = emb(timestep, labels, x.dtype());
    embedded = linear(silu(embedded));
    const Tensors part = chunk(embedded, 6, 1);
    return {modulate(norm(x), part[1], part[0]), part[2], part[3], part[4], part[5]};
  }

  const DiTConfig& config;
  CombinedTimestepLabelEmbeddings emb{*this, "emb", config};
  Linear linear{*this, "linear", config.width, checked_mul(6, config.width)};
  LayerNorm norm{*this, "norm", config.width, false};
};

// BasicTransformerBlock with ada_norm_zero.
struct DiTBlock : Module {
  DiTBlock(Module& parent, std::string_view name, const DiTConfig& c) : Module(parent, name), config(c) {}

  Tensor operator()(const Tensor& hidden_in, const Tensor& timestep, const Tensor& labels) const {
    Forward here(*this);
    Tensors normed = norm1(hidden_in, timestep, labels);  // {x, gate, shift, scale, gate}
    Tensor attn_output = attend(attn1, normed[0]);
    attn_output = mul(unsqueeze(normed[1], 1), attn_output);
    Tensor hidden = add(attn_output, hidden_in);  // (B, S, C)
    normed[0] = norm3(hidden);
    normed[0] = modulate(normed[0], normed[3], normed[2]);
    Tensor ff_output = ff(normed[0]);
    ff_output = mul(unsqueeze(normed[4], 1), ff_output);
    return add(ff_output, hidden);
  }

  const DiTConfig& config;
  ClassNorm norm1{*this, "norm1", config};
  DiffusersAttention attn1{*this,
                           "attn1",
                           {.width = config.width,
                            .heads = config.heads,
                            .head_dim = config.head_dim,
                            .bias = config.attention_bias,
                            .dropout = config.dropout}};
  LayerNorm norm3{*this, "norm3", config.width, config.norm_elementwise_affine};
  DiffusersFeedForward ff{*this, "ff", config.width, config.activation, 0, config.dropout};
};

class DiTTransformer2DModel : public Denoiser {
 public:
  DiTTransformer2DModel(Module& parent, std::string_view name, const Config& config) : Denoiser(parent, name), config_(config) {}

  Dims latent_sizes(int64_t samples, const Canvas& c) const override {
    if (c.height != c.width)
      throw Error("[dit] an image of " + std::to_string(c.height) + " x " + std::to_string(c.width) + " pixels", "DiT takes square images");
    return image_latent_sizes("dit", samples, c, config_.patches);
  }

  // labels
  Conditions conditions(int64_t samples, const Canvas&, DType) override { return {{{samples}, DType::int64}}; }

  Tensor predict(const Tensor& latents, const Tensor& timestep, const Tensors& c) override {
    const Tensor output = (*this)(latents, timestep, c[0]);
    return mean_of(output, latents.size(1));
  }

 private:
  Tensor operator()(const Tensor& latents, const Tensor& timestep, const Tensor& labels) {
    Forward here(*this);
    Tensor hidden = pos_embed_(latents);  // (B, S, C)
    for (DiTBlock& block : transformer_blocks_) {
      const auto run = [&block](const Tensors& in) { return Tensors{block(in[0], in[1], in[2])}; };
      hidden = run_block(block, run, Tensors{hidden, timestep, labels})[0];
    }
    const Tensor conditioning = transformer_blocks_[0].norm1.emb(timestep, labels, hidden.dtype());
    const Tensors part = chunk(proj_out_1_(silu(conditioning)), 2, 1);  // shift, scale
    hidden = modulate(norm_out_(hidden), part[1], part[0]);
    hidden = proj_out_2_(hidden);
    const int64_t side = latents.size(2) / config_.patches.patch;
    return unpatchify(hidden, side, side, config_.patches.patch);
  }

  Module& add_blocks() {
    for (int64_t i = 0; i < config_.num_layers; ++i) transformer_blocks_.add(config_);
    return *this;
  }

  DiTConfig config_;
  PatchEmbed pos_embed_{*this, "pos_embed", config_.patches};
  ModuleList<DiTBlock> transformer_blocks_{*this, "transformer_blocks"};
  LayerNorm norm_out_{add_blocks(), "norm_out", config_.width, false};
  Linear proj_out_1_{*this, "proj_out_1", config_.width, checked_mul(2, config_.width)};
  Linear proj_out_2_{*this, "proj_out_2", config_.width, (config_.patches.patch * config_.patches.patch * config_.out_channels)};
};

std::unique_ptr<Model> make_dit(Build& build, const Config& config) { return make_training_of<DiTTransformer2DModel>(build, config); }

}  // namespace

const Family& dit_family() {
  static const Family kFamily{
      .name = "dit",
      .library = "diffusers",
      .models = {{"dit", {"DiTTransformer2DModel"}, InputKind::own, 256, make_dit}},
      .presets = {{"dit-xl-2-256", R"({"out_channels":8})", 256}, {"dit-xl-2-512", R"({"out_channels":8,"sample_size":64})", 512}},
  };
  return kFamily;
}

}  // namespace plimsoll
