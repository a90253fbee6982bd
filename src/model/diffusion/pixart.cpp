// diffusers PixArtTransformer2DModel: PixArt-alpha and -sigma.
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

struct PixArtConfig {
  explicit PixArtConfig(const Config& c)
      : heads(c.size({"num_attention_heads"}, 16)),
        head_dim(c.size({"attention_head_dim"}, 72)),
        width(checked_mul(heads, head_dim)),
        out_channels(c.is_null("out_channels") ? c.size({"in_channels"}, 4) : c.size({"out_channels"}, 8)),
        num_layers(c.size({"num_layers"}, 28)),
        dropout(c.number({"dropout"}, 0.0)),
        cross_attention_dim(c.size({"cross_attention_dim"}, 1152)),
        attention_bias(c.flag({"attention_bias"}, true)),
        norm_elementwise_affine(c.flag({"norm_elementwise_affine"}, false)),
        caption_channels(c.optional_integer({"caption_channels"})),
        patches(image_patches(c, width, 128)),
        use_additional_conditions(c.flag({"use_additional_conditions"}, patches.sample_size == 128)),
        activation(feed_forward_kind(c)) {
    if (const std::string norm = c.text({"norm_type"}, "ada_norm_single"); norm != "ada_norm_single")
      throw Error("[" + c.source() + "] norm_type '" + norm + "' is not one of PixArt", "set norm_type to ada_norm_single");
    if (caption_channels && cross_attention_dim != width)
      throw Error("[" + c.source() + "] cross_attention_dim " + std::to_string(cross_attention_dim) + ", but captions are projected to " +
                      std::to_string(width),
                  "make it num_attention_heads x attention_head_dim");
    if (use_additional_conditions) c.require_divides("3: the width's thirds", 3, "num_attention_heads x attention_head_dim", width);
  }
  int64_t heads, head_dim, width, out_channels, num_layers;
  double dropout;
  int64_t cross_attention_dim;
  bool attention_bias, norm_elementwise_affine;
  std::optional<int64_t> caption_channels;
  PatchEmbedSizes patches;
  bool use_additional_conditions;  // resolution and aspect ratio
  FeedForwardKind activation;
};

// PixArtAlphaCombinedTimestepSizeEmbeddings
struct TimestepSizeEmbeddings : Module {
  TimestepSizeEmbeddings(Module& parent, std::string_view name, const PixArtConfig& c) : Module(parent, name), config(c) {
    if (!c.use_additional_conditions) return;
    additional_condition_proj = std::make_unique<Timesteps>(*this, "additional_condition_proj", 256);
    resolution_embedder = std::make_unique<TimestepEmbedding>(*this, "resolution_embedder", 256, c.width / 3);
    aspect_ratio_embedder = std::make_unique<TimestepEmbedding>(*this, "aspect_ratio_embedder", 256, c.width / 3);
  }

  // resolution: (B, 2), aspect_ratio: (B, 1)
  Tensor operator()(const Tensor& timestep, const Tensor& resolution, const Tensor& aspect_ratio, DType dtype) const {
    Forward here(*this);
    const Tensor timesteps_proj = time_proj(timestep);
    const Tensor timesteps_emb = timestep_embedder(to(timesteps_proj, dtype));  // (B, C)
    if (!additional_condition_proj) return timesteps_emb;
    const auto embedded = [&](const TimestepEmbedding& embedder, const Tensor& x) {
      const Tensor projected = to((*additional_condition_proj)(flatten(x, 0)), dtype);
      return reshape(embedder(projected), {x.size(0), -1});
    };
    const Tensor resolution_emb = embedded(*resolution_embedder, resolution);
    const Tensor aspect_ratio_emb = embedded(*aspect_ratio_embedder, aspect_ratio);
    const Tensor sizes = cat({resolution_emb, aspect_ratio_emb}, 1);
    return add(timesteps_emb, sizes);
  }

  const PixArtConfig& config;
  Timesteps time_proj{*this, "time_proj", 256};
  TimestepEmbedding timestep_embedder{*this, "timestep_embedder", 256, config.width};
  std::unique_ptr<Timesteps> additional_condition_proj;
  std::unique_ptr<TimestepEmbedding> resolution_embedder, aspect_ratio_embedder;
};

struct AdaLayerNormSingle : Module {
  AdaLayerNormSingle(Module& parent, std::string_view name, const PixArtConfig& c) : Module(parent, name), config(c) {}
  const PixArtConfig& config;
  TimestepSizeEmbeddings emb{*this, "emb", config};
  Linear linear{*this, "linear", config.width, checked_mul(6, config.width)};
};

// BasicTransformerBlock with ada_norm_single.
struct PixArtBlock : Module {
  PixArtBlock(Module& parent, std::string_view name, const PixArtConfig& c)
      : Module(parent, name), config(c), scale_shift_table(parameter("scale_shift_table", {6, c.width})) {}

  // timestep: (B, 6 C)
  Tensor operator()(const Tensor& hidden_in, const Tensor& text, const Tensor& mask, const Tensor& timestep) const {
    Forward here(*this);
    const Tensors part = chunk(add(unsqueeze(scale_shift_table, 0), reshape(timestep, {timestep.size(0), 6, -1})), 6, 1);
    Tensor normed = norm1(hidden_in);  // (B, S, C)
    normed = scale_and_shift(normed, part[1], part[0]);
    Tensor attn_output = attend(attn1, normed);
    attn_output = mul(part[2], attn_output);
    Tensor hidden = add(attn_output, hidden_in);
    normed = hidden;
    attn_output = attend(attn2, normed, text, mask);
    hidden = add(attn_output, hidden);
    normed = norm2(hidden);
    normed = scale_and_shift(normed, part[4], part[3]);
    Tensor ff_output = ff(normed);
    ff_output = mul(part[5], ff_output);
    return add(ff_output, hidden);
  }

  const PixArtConfig& config;
  Tensor scale_shift_table;
  LayerNorm norm1{*this, "norm1", config.width, config.norm_elementwise_affine};
  DiffusersAttention attn1{*this,
                           "attn1",
                           {.width = config.width,
                            .heads = config.heads,
                            .head_dim = config.head_dim,
                            .bias = config.attention_bias,
                            .dropout = config.dropout}};
  LayerNorm norm2{*this, "norm2", config.width, config.norm_elementwise_affine};
  DiffusersAttention attn2{*this,
                           "attn2",
                           {.width = config.width,
                            .heads = config.heads,
                            .head_dim = config.head_dim,
                            .cross_width = config.cross_attention_dim,
                            .bias = config.attention_bias,
                            .dropout = config.dropout}};
  DiffusersFeedForward ff{*this, "ff", config.width, config.activation, 0, config.dropout};
};

class PixArtTransformer2DModel : public Denoiser {
 public:
  PixArtTransformer2DModel(Module& parent, std::string_view name, const Config& config)
      : Denoiser(parent, name),
        config_(config),
        scale_shift_table_(parameter("scale_shift_table", {2, config_.width})),
        caption_projection_(config_.caption_channels ? std::make_unique<TextProjection>(*this, "caption_projection",
                                                                                        *config_.caption_channels, config_.width, true)
                                                     : nullptr) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override {
    return image_latent_sizes("pixart", samples, canvas, config_.patches);
  }

  // text states, their mask, and with additional conditions resolution and aspect ratio
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const int64_t text = canvas.text_tokens ? canvas.text_tokens : 120;
    Conditions out{{{samples, text, config_.caption_channels.value_or(config_.cross_attention_dim)}, dtype},
                   {{samples, text}, DType::int64}};
    if (config_.use_additional_conditions) {
      out.push_back({{samples, 2}, dtype, Condition::Kind::sizes});
      out.push_back({{samples, 1}, dtype, Condition::Kind::sizes});
    }
    return out;
  }

  Tensor predict(const Tensor& latents, const Tensor& timestep, const Tensors& c) override {
    const Tensor output = (*this)(latents, timestep, c);
    return mean_of(output, latents.size(1));
  }

 private:
  Tensor operator()(const Tensor& latents, const Tensor& time, const Tensors& c) {
    Forward here(*this);
    Tensor bias = to(c[1], latents.dtype());  // (B, T)
    bias = nondiff("rsub", bias, bias.dtype());
    bias = nondiff("mul", bias, bias.dtype());
    bias = unsqueeze(bias, 1);
    Tensor hidden = pos_embed_(latents);  // (B, S, C)
    const bool sized = config_.use_additional_conditions;
    const Tensor embedded = adaln_single_.emb(time, sized ? c[2] : Tensor(), sized ? c[3] : Tensor(), hidden.dtype());
    const Tensor timestep = adaln_single_.linear(silu(embedded));  // (B, 6 C)
    Tensor text = c[0];
    if (caption_projection_) text = (*caption_projection_)(text);  // (B, T, C)
    for (PixArtBlock& block : transformer_blocks_) {
      const auto run = [&block](const Tensors& in) { return Tensors{block(in[0], in[2], in[1], in[3])}; };
      hidden = run_block(block, run, Tensors{hidden, bias, text, timestep})[0];
    }
    const Tensors part = chunk(add(unsqueeze(scale_shift_table_, 0), unsqueeze(embedded, 1)), 2, 1);  // shift, scale
    hidden = norm_out_(hidden);
    hidden = scale_and_shift(hidden, part[1], part[0]);
    hidden = proj_out_(hidden);
    const int64_t patch = config_.patches.patch;
    return unpatchify(hidden, latents.size(2) / patch, latents.size(3) / patch, patch);
  }

  Module& add_blocks() {
    for (int64_t i = 0; i < config_.num_layers; ++i) transformer_blocks_.add(config_);
    return *this;
  }

  PixArtConfig config_;
  Tensor scale_shift_table_;
  PatchEmbed pos_embed_{*this, "pos_embed", config_.patches};
  ModuleList<PixArtBlock> transformer_blocks_{*this, "transformer_blocks"};
  LayerNorm norm_out_{add_blocks(), "norm_out", config_.width, false};
  Linear proj_out_{*this, "proj_out", config_.width, (config_.patches.patch * config_.patches.patch * config_.out_channels)};
  AdaLayerNormSingle adaln_single_{*this, "adaln_single", config_};
  std::unique_ptr<TextProjection> caption_projection_;
};

std::unique_ptr<Model> make_pixart(Build& build, const Config& config) { return make_training_of<PixArtTransformer2DModel>(build, config); }

}  // namespace

const Family& pixart_family() {
  static const Family kFamily{
      .name = "pixart",
      .library = "diffusers",
      .models = {{"pixart", {"PixArtTransformer2DModel"}, InputKind::own, 1024, make_pixart}},
      .presets = {{"pixart-alpha-xl-2-512", R"({"sample_size":64,"caption_channels":4096})", 512},
                  {"pixart-alpha-xl-2-1024", R"({"caption_channels":4096})", 1024},
                  {"pixart-sigma-xl-2-1024", R"({"caption_channels":4096,"use_additional_conditions":false,"text_tokens":300})", 1024}},
  };
  return kFamily;
}

}  // namespace plimsoll
