// What CLIP's and SigLIP's encoders share, of texts and of images: embeddings, layers, the vision model that others see through.
#pragma once

#include "job/config.h"
#include "nn/feed_forward.h"
#include "nn/layers.h"
#include "nn/patch_embedding.h"
#include "nn/self_attention.h"

namespace plimsoll {

struct ClipLayerConfig {
  int64_t hidden_size, intermediate_size, num_hidden_layers, num_attention_heads;
  std::string hidden_act;
  double attention_dropout = 0.0;
  bool causal = false;
  bool is_siglip = false;  // its modules are made in another order, and some are others
};

struct ClipTextDefaults {
  int64_t vocab_size = 49408, hidden_size = 512, intermediate_size = 2048, num_attention_heads = 8, max_position_embeddings = 77;
  const char* hidden_act = "quick_gelu";
};

struct ClipTextConfig : ClipLayerConfig {
  explicit ClipTextConfig(const Config& config, const ClipTextDefaults& defaults = {});
  int64_t vocab_size, max_position_embeddings;
};

struct ClipVisionConfig : ClipLayerConfig {
  ClipVisionConfig(const Config& config, bool is_siglip);
  PatchConfig patches;
  int64_t num_positions() const { return patches.num_patches() + (is_siglip ? 0 : 1); }  // CLIP: a token for the class
};

// A configuration within another; what the text says it is when it is neither an object nor absent.
Config inner_config(const Config& config, const char* key);

struct ClipTextEmbeddings : Module {
  ClipTextEmbeddings(Module& parent, std::string_view name, const ClipTextConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& input_ids) const;  // (N, T, C)
  const ClipTextConfig& config;
  Embedding token_embedding{*this, "token_embedding", config.vocab_size, config.hidden_size};
  Embedding position_embedding{*this, "position_embedding", config.max_position_embeddings, config.hidden_size};
  Tensor position_ids = buffer("position_ids", {1, config.max_position_embeddings}, DType::int64);
};

struct ClipEncoderLayer : Module {
  ClipEncoderLayer(Module& parent, std::string_view name, const ClipLayerConfig& c);
  Tensor operator()(const Tensor& x, const Tensor& mask) const;
  Module& add_first_norm(const ClipLayerConfig& c);
  Module& add_second_norm(const ClipLayerConfig& c);
  std::unique_ptr<LayerNorm> layer_norm1;
  SelfAttention self_attn;
  std::unique_ptr<LayerNorm> layer_norm2;
  FeedForward mlp;
};

struct ClipEncoder : Module {
  ClipEncoder(Module& parent, std::string_view name, const ClipLayerConfig& c);
  // `states`, where given, takes what every layer gets, and the result.
  Tensor operator()(const Tensor& inputs_embeds, const Tensor& mask, Tensors* states = nullptr);
  ModuleList<ClipEncoderLayer> layers{*this, "layers"};
};

struct ClipVisionEmbeddings : Module {
  ClipVisionEmbeddings(Module& parent, std::string_view name, const ClipVisionConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& pixel_values) const;  // (N, positions, C)

  struct Patches : Module {
    Patches(Module& parent, std::string_view name, const ClipVisionConfig& c);
    Tensor weight, bias;
  };
  Tensor project(const Tensor& pixel_values) const;

  const ClipVisionConfig& config;
  Tensor class_embedding = config.is_siglip ? Tensor() : parameter("class_embedding", {config.hidden_size});
  Patches patch_embedding{*this, "patch_embedding", config};
  Embedding position_embedding{*this, "position_embedding", config.num_positions(), config.hidden_size};
  Tensor position_ids = buffer("position_ids", {1, config.num_positions()}, DType::int64);
};

}  // namespace plimsoll
