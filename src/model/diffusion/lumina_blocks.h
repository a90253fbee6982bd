// Blocks of Lumina 2 and of OmniGen 2, which was made from it: rotary positions as complex numbers, gates that tanh limits, few keys for
// many queries. Where the two write the same step otherwise, `LuminaConfig::omnigen2` says which is meant.
#pragma once

#include "nn/diffusers_layers.h"
#include "nn/diffusers_patches.h"

namespace plimsoll {

// Of the norms around attention and feed-forward: diffusers' own, torch.nn.RMSNorm, or a kernel of Triton.
enum class LuminaNormKind : uint8_t { diffusers, torch, triton };

struct LuminaConfig {
  // `model` names the family in errors, `text_key` the width of the texts' states in its configuration.
  LuminaConfig(const Config& config, const char* model, const char* text_key);
  PatchEmbedSizes patches;
  int64_t out_channels, width, time_width, num_layers, num_refiner_layers, heads, kv_heads, text_width;
  std::vector<int64_t> axes_dim, axes_lens;
  int64_t head_dim = 0, inner = 0;
  LuminaNormKind norm = LuminaNormKind::diffusers;
  bool omnigen2 = false;
};

struct LuminaNorm : Module {
  LuminaNorm(Module& parent, std::string_view name, int64_t width, LuminaNormKind kind);
  Tensor operator()(const Tensor& x) const;
  Tensor weight;
  LuminaNormKind kind;
};

struct LuminaAttention : Module {
  LuminaAttention(Module& parent, std::string_view name, const LuminaConfig& c);
  // mask: (B, S), undefined: none; freqs: (B, S, D)
  Tensor operator()(const Tensor& hidden_in, const Tensor& mask, const Tensor& freqs);

 private:
  Tensor repeat_heads(const Tensor& x) const;
  const LuminaConfig& config_;
  DiffusersRMSNorm norm_q_{*this, "norm_q", config_.head_dim};
  DiffusersRMSNorm norm_k_{*this, "norm_k", config_.head_dim};
  Linear to_q_{*this, "to_q", config_.width, config_.width, false};
  Linear to_k_{*this, "to_k", config_.width, (config_.kv_heads * config_.head_dim), false};
  Linear to_v_{*this, "to_v", config_.width, (config_.kv_heads * config_.head_dim), false};
  ModuleList<Linear> to_out_{*this, "to_out"};
};

struct LuminaFeedForward : Module {
  LuminaFeedForward(Module& parent, std::string_view name, const LuminaConfig& c) : Module(parent, name), config_(c) {}
  Tensor operator()(const Tensor& x) const;

 private:
  const LuminaConfig& config_;
  Linear linear_1_{*this, "linear_1", config_.width, config_.inner, false};
  Linear linear_2_{*this, "linear_2", config_.inner, config_.width, false};
  Linear linear_3_{*this, "linear_3", config_.width, config_.inner, false};
};

// LuminaRMSNormZero: {x, gate, scale, gate}
struct LuminaFirstNorm : Module {
  LuminaFirstNorm(Module& parent, std::string_view name, const LuminaConfig& c) : Module(parent, name), config(c) {}
  Tensors operator()(const Tensor& x, const Tensor& temb) const;
  const LuminaConfig& config;
  Linear linear{*this, "linear", config.time_width, checked_mul(4, config.width)};
  LuminaNorm norm{*this, "norm", config.width, config.norm};
};

struct LuminaBlock : Module {
  LuminaBlock(Module& parent, std::string_view name, const LuminaConfig& c, bool modulation);
  Tensor operator()(const Tensor& hidden_in, const Tensor& mask, const Tensor& freqs, const Tensor& temb);

 private:
  Tensor unmodulated(const Tensor& hidden_in, const Tensor& mask, const Tensor& freqs);
  LuminaAttention attn_;
  LuminaFeedForward feed_forward_;
  std::unique_ptr<LuminaFirstNorm> norm1_;
  std::unique_ptr<LuminaNorm> plain_norm1_;
  LuminaNorm ffn_norm1_, norm2_, ffn_norm2_;
};

// Lumina2CombinedTimestepCaptionEmbedding
struct LuminaTimeCaptionEmbedding : Module {
  LuminaTimeCaptionEmbedding(Module& parent, std::string_view name, const LuminaConfig& c) : Module(parent, name), config_(c) {}
  struct Result {
    Tensor time, caption;  // (B, time width), (B, T, width)
  };
  Result operator()(const Tensor& timestep, const Tensor& states, DType dtype) const;

 private:
  struct CaptionEmbedder : Module {
    CaptionEmbedder(Module& parent, const LuminaConfig& c);
    LuminaNorm norm;
    Linear linear;
  };
  const LuminaConfig& config_;
  Timesteps time_proj_{*this, "time_proj", 256};
  TimestepEmbedding timestep_embedder_{*this, "timestep_embedder", 256, config_.time_width};
  CaptionEmbedder caption_embedder_{*this, config_};
};

// LuminaLayerNormContinuous: the last norm and projection.
struct LuminaLastNorm : Module {
  LuminaLastNorm(Module& parent, std::string_view name, const LuminaConfig& c) : Module(parent, name), config_(c) {}
  Tensor operator()(const Tensor& input, const Tensor& temb) const;

 private:
  const LuminaConfig& config_;
  Linear linear_1_{*this, "linear_1", config_.time_width, config_.width};
  LayerNorm norm_{*this, "norm", config_.width, false};
  Linear linear_2_{*this, "linear_2", config_.width, (config_.patches.patch * config_.patches.patch * config_.out_channels)};
};

// Throws unless the tables have a place for every token of the text, and every row and column of the image that follows it.
void require_lumina_positions(const char* model, const LuminaConfig& c, int64_t text, int64_t rows, int64_t columns);
// What one table an axis says at the positions of texts and of the images that follow, side by side: complex numbers of twice the
// precision, as pairs of fp64. `positions` live until Python's function returns.
struct LuminaRotary {
  Tensor text, image, both;  // (B, T, D), (B, rows columns, D), (B, T + rows columns, D)
  Tensors positions;
};
LuminaRotary lumina_rotary(Tape& tape, const LuminaConfig& c, int64_t batch, int64_t text, int64_t rows, int64_t columns);

// Sample by sample: the tokens from `first` on become an image again.
Tensor lumina_images(const Tensor& hidden, const LuminaConfig& c, int64_t first, int64_t rows, int64_t columns);

}  // namespace plimsoll
