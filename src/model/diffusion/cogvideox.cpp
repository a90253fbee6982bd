// diffusers CogVideoXTransformer3DModel: CogVideoX 2B and 5B (1.0). Text and video are one sequence; positions are added to it (2B) or
// turned into queries and keys (5B).
#include "model/family.h"
#include "nn/denoiser.h"
#include "nn/diffusers_attention.h"
#include "nn/diffusers_rotary.h"
#include "nn/vision.h"
#include "ops/attention.h"
#include "ops/copy_slices.h"
#include "ops/pointwise.h"
#include "ops/reshape.h"

namespace plimsoll {

namespace {

constexpr int64_t kCogVideoXPixelsPerLatent = 8;  // AutoencoderKLCogVideoX, vae_scale_factor_spatial

struct CogVideoXConfig {
  explicit CogVideoXConfig(const Config& c)
      : heads(c.size({"num_attention_heads"}, 30)),
        head_dim(c.size({"attention_head_dim"}, 64)),
        width(checked_mul(heads, head_dim)),
        in_channels(c.size({"in_channels"}, 16)),
        out_channels(c.is_null("out_channels") ? in_channels : c.size({"out_channels"}, 16)),
        time_embed_dim(c.size({"time_embed_dim"}, 512)),
        text_embed_dim(c.size({"text_embed_dim"}, 4096)),
        num_layers(c.size({"num_layers"}, 30)),
        dropout(c.number({"dropout"}, 0.0)),
        attention_bias(c.flag({"attention_bias"}, true)),
        sample_width(c.size({"sample_width"}, 90)),
        sample_height(c.size({"sample_height"}, 60)),
        sample_frames(c.size({"sample_frames"}, 49)),
        patch_size(c.size({"patch_size"}, 2)),
        temporal_compression_ratio(c.size({"temporal_compression_ratio"}, 4)),
        max_text_seq_length(c.size({"max_text_seq_length"}, 226)),
        affine(c.flag({"norm_elementwise_affine"}, true)),
        rotary(c.flag({"use_rotary_positional_embeddings"}, false)),
        learned(c.flag({"use_learned_positional_embeddings"}, false)),
        activation(feed_forward_kind(c)) {
    if (rotary && head_dim % 2 != 0)
      throw Error("[" + c.source() + "] attention_head_dim " + std::to_string(head_dim) + " is odd",
                  "dims are turned in pairs: give an even number");
    if (c.find({"patch_size_t"}))
      throw Error("[" + c.source() + "] patch_size_t: CogVideoX 1.5 is not simulated", "use a network of CogVideoX 1.0");
    if (c.find({"ofs_embed_dim"}))
      throw Error("[" + c.source() + "] ofs_embed_dim: CogVideoX 1.5 is not simulated", "use a network of CogVideoX 1.0");
  }
  int64_t heads, head_dim, width, in_channels, out_channels, time_embed_dim, text_embed_dim, num_layers;
  double dropout;
  bool attention_bias;
  int64_t sample_width, sample_height, sample_frames, patch_size, temporal_compression_ratio, max_text_seq_length;
  bool affine, rotary, learned;
  FeedForwardKind activation;

  int64_t latent_frames(int64_t frames) const { return (frames - 1) / temporal_compression_ratio + 1; }
  bool has_positions() const { return !rotary || learned; }
};

// CogVideoXLayerNormZero: one norm for both streams. {video, text, gate of the video, gate of the text}
struct CogVideoXLayerNormZero : Module {
  CogVideoXLayerNormZero(Module& parent, std::string_view name, const CogVideoXConfig& c) : Module(parent, name), config(c) {}

  Tensors operator()(const Tensor& hidden, const Tensor& encoder, const Tensor& temb) const {
    Forward here(*this);
    const Tensors part = chunk(linear(silu(temb)), 6, 1);
    const auto modulated = [&](const Tensor& x, const Tensor& scale, const Tensor& shift) {
      Tensor normed = norm(x);
      {
        const Tensor factor = unsqueeze(add_scalar(scale), 1);
        normed = mul(normed, factor);
      }
      return add(normed, unsqueeze(shift, 1));
    };
    const Tensor video = modulated(hidden, part[1], part[0]);
    const Tensor text = modulated(encoder, part[4], part[3]);
    return {video, text, unsqueeze(part[2], 1), unsqueeze(part[5], 1)};
  }

  const CogVideoXConfig& config;
  Linear linear{*this, "linear", config.time_embed_dim, checked_mul(6, config.width)};
  LayerNorm norm{*this, "norm", config.width, config.affine};
};

// Attention with layer norms of queries and keys, and CogVideoXAttnProcessor2_0.
struct CogVideoXAttention : Module {
  CogVideoXAttention(Module& parent, std::string_view name, const CogVideoXConfig& c) : Module(parent, name), config(c) {
    to_out.add(c.width, c.width);
  }

  // query[:, :, text:] = apply_rotary_emb(query[:, :, text:], rotary), with heads before tokens
  Tensor turned(const Tensor& x, int64_t text, const CosSin& rotary) const {
    const Tensor video = slice(x, 2, text, x.size(2));
    const Tensor by_token = apply_rotary_emb(transpose(video, 1, 2), rotary);
    return copy_into_slice_(x, transpose(by_token, 1, 2));
  }

  // {video, text}
  Tensors operator()(const Tensor& video, const Tensor& text, const CosSin& rotary) {
    Forward here(*this);
    const int64_t words = text.size(1), batch = video.size(0);
    Tensor hidden = cat({text, video}, 1);  // (B, T + S, C)
    const auto heads_first = [&](const Tensor& x) { return transpose(view(x, {batch, -1, config.heads, config.head_dim}), 1, 2); };
    Tensor query = to_q(hidden), key = to_k(hidden), value = to_v(hidden);
    query = heads_first(query);  // (B, H, T + S, D)
    key = heads_first(key);
    value = heads_first(value);
    query = norm_q(query);
    key = norm_k(key);
    if (rotary.cos) {
      query = turned(query, words, rotary);
      key = turned(key, words, rotary);
    }
    hidden = scaled_dot_product_attention(query, key, value, {});
    hidden = reshape(transpose(hidden, 1, 2), {batch, -1, config.width});
    hidden = to_out[0](hidden);
    const Tensors stream = split(hidden, {words, hidden.size(1) - words}, 1);
    return {stream[1], stream[0]};
  }

  const CogVideoXConfig& config;
  LayerNorm norm_q{*this, "norm_q", config.head_dim};
  LayerNorm norm_k{*this, "norm_k", config.head_dim};
  Linear to_q{*this, "to_q", config.width, config.width, config.attention_bias};
  Linear to_k{*this, "to_k", config.width, config.width, config.attention_bias};
  Linear to_v{*this, "to_v", config.width, config.width, config.attention_bias};
  ModuleList<Linear> to_out{*this, "to_out"};
};

struct CogVideoXBlock : Module {
  CogVideoXBlock(Module& parent, std::string_view name, const CogVideoXConfig& c) : Module(parent, name), config(c), dropout_p(c.dropout) {}

  // {video, text}
  Tensors operator()(const Tensor& hidden_in, const Tensor& encoder_in, const Tensor& temb, const CosSin& rotary) {
    Forward here(*this);
    const int64_t words = encoder_in.size(1);
    Tensors normed = norm1(hidden_in, encoder_in, temb);
    const Tensors attended = attn1(normed[0], normed[1], rotary);
    const auto with_gate = [](const Tensor& x, const Tensor& gate, const Tensor& branch) {
      const Tensor gated = mul(gate, branch);
      return add(x, gated);
    };
    Tensor hidden = with_gate(hidden_in, normed[2], attended[0]);    // (B, S, C)
    Tensor encoder = with_gate(encoder_in, normed[3], attended[1]);  // (B, T, C)
    Tensors second = norm2(hidden, encoder, temb);
    normed[0] = second[0];
    normed[1] = second[1];
    second[0].reset();
    second[1].reset();
    normed[0] = cat({normed[1], normed[0]}, 1);  // (B, T + S, C)
    Tensor ff_output = ff(normed[0]);
    if (dropout_p > 0) ff_output = dropout(ff_output, dropout_p);  // final_dropout
    hidden = with_gate(hidden, second[2], slice(ff_output, 1, words, ff_output.size(1)));
    encoder = with_gate(encoder, second[3], slice(ff_output, 1, 0, words));
    return {hidden, encoder};
  }

  const CogVideoXConfig& config;
  double dropout_p;
  CogVideoXLayerNormZero norm1{*this, "norm1", config};
  CogVideoXAttention attn1{*this, "attn1", config};
  CogVideoXLayerNormZero norm2{*this, "norm2", config};
  DiffusersFeedForward ff{*this, "ff", config.width, config.activation, 0, config.dropout};
};

struct CogVideoXPatchEmbed : Module {
  CogVideoXPatchEmbed(Module& parent, std::string_view name, const CogVideoXConfig& c) : Module(parent, name), config(c) {
    if (c.has_positions())
      pos_embedding = buffer("pos_embedding", {1, tokens(c.latent_frames(c.sample_frames), c.sample_height, c.sample_width), c.width},
                             positions_type());
  }

  // get_3d_sincos_pos_embed gives fp64; loading a checkpoint makes it the type of the weights, which recorded runs do not.
  DType positions_type() const { return tape().dialect.recorder ? DType::float64 : build().dtype; }

  int64_t tokens(int64_t frames, int64_t height, int64_t width) const {
    return config.max_text_seq_length + checked_mul(frames, (height / config.patch_size) * (width / config.patch_size));
  }

  Tensor operator()(const Tensor& text, const Tensor& video) {
    Forward here(*this);
    const int64_t batch = video.size(0), frames = video.size(1), height = video.size(3), width = video.size(4);
    const Tensor text_embeds = text_proj(text);  // (B, T, C)
    Tensor image = reshape(video, {-1, video.size(2), height, width});
    image = proj(image);  // (B F, C, h, w)
    image = view(image, {batch, frames, image.size(1), image.size(2), image.size(3)});
    image = transpose(flatten(image, 3), 2, 3);
    image = flatten(image, 1, 2);  // (B, S, C)
    Tensor embeds = cat({text_embeds, image}, 1);
    if (!config.has_positions()) return embeds;
    const bool stored =
        config.latent_frames(config.sample_frames) == frames && config.sample_height == height && config.sample_width == width;
    Tensor positions =
        stored ? pos_embedding : filled(tape(), "new_zeros", {1, tokens(frames, height, width), config.width}, DType::float64);
    positions = to(positions, embeds.dtype());
    embeds = add(embeds, positions);
    return embeds;  // (B, T + S, C)
  }

  const CogVideoXConfig& config;
  Conv2d proj{*this, "proj", config.in_channels, config.width, Conv2dOptions{.kernel = config.patch_size, .stride = config.patch_size}};
  Linear text_proj{*this, "text_proj", config.text_embed_dim, config.width};
  Tensor pos_embedding;
};

// AdaLayerNorm with chunk_dim 1: shift, scale.
struct CogVideoXNormOut : Module {
  CogVideoXNormOut(Module& parent, std::string_view name, const CogVideoXConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& x, const Tensor& temb) const {
    Forward here(*this);
    const Tensors part = chunk(linear(silu(temb)), 2, 1);
    Tensor normed = norm(x);
    {
      const Tensor factor = add_scalar(unsqueeze(part[1], 1));
      normed = mul(normed, factor);
    }
    return add(normed, unsqueeze(part[0], 1));
  }
  const CogVideoXConfig& config;
  Linear linear{*this, "linear", config.time_embed_dim, checked_mul(2, config.width)};
  LayerNorm norm{*this, "norm", config.width, config.affine};
};

class CogVideoXTransformer3DModel : public Denoiser {
 public:
  CogVideoXTransformer3DModel(Module& parent, std::string_view name, const Config& config) : Denoiser(parent, name), config_(config) {}

  Dims latent_sizes(int64_t samples, const Canvas& canvas) const override { return video_sizes(samples, canvas, config_.in_channels); }
  Dims target_sizes(int64_t samples, const Canvas& canvas) const override { return video_sizes(samples, canvas, config_.out_channels); }

  // text states; tables of positions, which the trainer makes
  Conditions conditions(int64_t samples, const Canvas& canvas, DType dtype) override {
    const Dims latents = latent_sizes(samples, canvas);
    Conditions out{{{samples, canvas.text_tokens ? canvas.text_tokens : config_.max_text_seq_length, config_.text_embed_dim}, dtype}};
    const int64_t tokens = latents[1] * (latents[3] / config_.patch_size) * (latents[4] / config_.patch_size);
    for (int i = 0; i < 2 && config_.rotary; ++i) out.push_back({{tokens, config_.head_dim}, DType::float32, Condition::Kind::positions});
    return out;
  }

  Tensor predict(const Tensor& latents, const Tensor& time, const Tensors& c) override {
    Forward here(*this);
    const int64_t batch = latents.size(0), frames = latents.size(1), p = config_.patch_size;
    Tensor t_emb = time_proj_(time);
    t_emb = to(t_emb, latents.dtype());
    const Tensor emb = time_embedding_(t_emb);  // (B, E)
    Tensor hidden = patch_embed_(c[0], latents);
    hidden = dropout(hidden, config_.dropout);
    const int64_t words = c[0].size(1);
    Tensor encoder = slice(hidden, 1, 0, words);
    hidden = slice(hidden, 1, words, hidden.size(1));
    const CosSin rotary = config_.rotary ? CosSin{c[1], c[2]} : CosSin{};
    for (CogVideoXBlock& block : transformer_blocks_) {
      const auto run = [&block, rotary](const Tensors& in) { return block(in[0], in[1], in[2], rotary); };
      Tensors out = run_block(block, run, Tensors{hidden, encoder, emb});
      hidden = std::move(out[0]);
      encoder = std::move(out[1]);
    }
    hidden = norm_final_(hidden);
    hidden = norm_out_(hidden, emb);
    hidden = proj_out_(hidden);  // (B, S, p p out)
    Tensor output = reshape(hidden, {batch, frames, latents.size(3) / p, latents.size(4) / p, -1, p, p});
    output = permute(output, {0, 1, 4, 2, 5, 3, 6});
    return flatten(flatten(output, 5, 6), 3, 4);  // (B, F, out, H, W)
  }

 private:
  Module& add_blocks() {
    for (int64_t i = 0; i < config_.num_layers; ++i) transformer_blocks_.add(config_);
    return *this;
  }
  Dims video_sizes(int64_t samples, const Canvas& canvas, int64_t channels) const {
    const int64_t step = kCogVideoXPixelsPerLatent * config_.patch_size;
    return {samples, config_.latent_frames(canvas.frames), channels,
            tokens_along("cogvideox", "height", canvas.height, step) * config_.patch_size,
            tokens_along("cogvideox", "width", canvas.width, step) * config_.patch_size};
  }

  CogVideoXConfig config_;
  CogVideoXPatchEmbed patch_embed_{*this, "patch_embed", config_};
  Timesteps time_proj_{*this, "time_proj", config_.width};
  TimestepEmbedding time_embedding_{*this, "time_embedding", config_.width, config_.time_embed_dim};
  ModuleList<CogVideoXBlock> transformer_blocks_{*this, "transformer_blocks"};
  LayerNorm norm_final_{add_blocks(), "norm_final", config_.width, config_.affine};
  CogVideoXNormOut norm_out_{*this, "norm_out", config_};
  Linear proj_out_{*this, "proj_out", config_.width,
                   checked_mul(checked_mul(config_.patch_size, config_.patch_size), config_.out_channels)};
};

std::unique_ptr<Model> make_cogvideox(Build& build, const Config& config) {
  return make_training_of<CogVideoXTransformer3DModel>(build, config);
}

}  // namespace

const Family& cogvideox_family() {
  static const Family kFamily{
      .name = "cogvideox",
      .library = "diffusers",
      .models = {{"cogvideox", {"CogVideoXTransformer3DModel"}, InputKind::own, 480, make_cogvideox}},
      .presets =
          {{"cogvideox-2b", R"({"height":480,"width":720,"frames":49})", 480},
           {"cogvideox-5b",
            R"({"num_attention_heads":48,"num_layers":42,"use_rotary_positional_embeddings":true,"height":480,"width":720,"frames":49})",
            480}},
  };
  return kFamily;
}

}  // namespace plimsoll
