// The blocks that diffusers' U-Nets and autoencoders are made of: residual blocks of convolutions, samplers, attention, and
// transformers over the pixels of an image. Names and child names are those of the Python modules.
#pragma once

#include "job/config.h"
#include "nn/layers.h"
#include "nn/timestep_embedding.h"
#include "nn/vision.h"

namespace plimsoll {

struct GroupNorm : Module {
  GroupNorm(Module& parent, std::string_view name, int64_t groups, int64_t channels);
  Tensor operator()(const Tensor& x) const;
  int64_t groups;
  Tensor weight, bias;
};

struct ResnetSettings {
  int64_t in = 0, out = 0;
  std::optional<int64_t> temb_channels = {};  // empty: nothing is known of the time
  int64_t groups = 32;
  std::string act = "silu";
  double dropout = 0.0;
  bool scale_shift = false;  // time_embedding_norm
};

struct ResnetBlock2D : Module {
  ResnetBlock2D(Module& parent, std::string_view name, const ResnetSettings& s) : Module(parent, name), settings(s) {}
  Tensor operator()(const Tensor& input_tensor, const Tensor& temb) const;  // (N, out, H, W)
  std::unique_ptr<Linear> make_time_emb_proj();
  std::unique_ptr<Conv2d> make_shortcut();
  ResnetSettings settings;
  GroupNorm norm1{*this, "norm1", settings.groups, settings.in};
  Conv2d conv1{*this, "conv1", settings.in, settings.out, {.kernel = 3, .padding = 1}};
  std::unique_ptr<Linear> time_emb_proj = make_time_emb_proj();
  GroupNorm norm2{*this, "norm2", settings.groups, settings.out};
  Dropout dropout{*this, "dropout", settings.dropout};
  Conv2d conv2{*this, "conv2", settings.out, settings.out, {.kernel = 3, .padding = 1}};
  std::unique_ptr<Conv2d> conv_shortcut = make_shortcut();
};
// The block, under a checkpoint where the build asks for it.
Tensor run_resnet(const ResnetBlock2D& resnet, const Tensor& hidden_states, const Tensor& temb);

struct Downsample2D : Module {
  Downsample2D(Module& parent, std::string_view name, int64_t channels, int64_t padding);
  Tensor operator()(const Tensor& x) const;  // (N, C, H / 2, W / 2)
  Conv2d conv;
};

struct Upsample2D : Module {
  Upsample2D(Module& parent, std::string_view name, int64_t channels);
  Tensor operator()(const Tensor& x, int64_t height, int64_t width) const;
  Conv2d conv;
};

// What the runs with xFormers ask for, under its name in diffusers' scripts.
bool uses_xformers(const Config& config);

struct AttentionSettings {
  int64_t query_dim = 0, heads = 1, dim_head = 64;
  std::optional<int64_t> cross_attention_dim = {};
  bool bias = false;
  bool upcast_attention = false, upcast_softmax = false;  // of AttnProcessor
  std::optional<int64_t> norm_num_groups = {};            // images are normalised first
  bool residual_connection = false;
  bool xformers = false;
};

// diffusers.models.attention_processor.Attention with AttnProcessor2_0 (PyTorch's attention), AttnProcessor (eager) or
// XFormersAttnProcessor.
struct ImageAttention : Module {
  ImageAttention(Module& parent, std::string_view name, const AttentionSettings& s) : Module(parent, name), settings(s) {}
  // x: (N, T, C) or (N, C, H, W); encoder_hidden_states: (N, K, cross_attention_dim), undefined: x itself.
  Tensor operator()(const Tensor& x, const Tensor& encoder_hidden_states = {}) const;

  AttentionSettings settings;
  int64_t inner = settings.heads * settings.dim_head, cross = settings.cross_attention_dim.value_or(settings.query_dim);
  std::unique_ptr<GroupNorm> group_norm =
      settings.norm_num_groups ? std::make_unique<GroupNorm>(*this, "group_norm", *settings.norm_num_groups, settings.query_dim) : nullptr;
  Linear to_q{*this, "to_q", settings.query_dim, inner, settings.bias};
  Linear to_k{*this, "to_k", cross, inner, settings.bias};
  Linear to_v{*this, "to_v", cross, inner, settings.bias};
  Module to_out{*this, "to_out"};
  Linear to_out_0{to_out, "0", inner, settings.query_dim};

 private:
  Tensor head_to_batch_dim(const Tensor& x) const;
  Tensor batch_to_head_dim(const Tensor& x) const;
  Tensor get_attention_scores(const Tensor& query, const Tensor& key) const;
};

struct TransformerSettings {
  int64_t channels = 0, heads = 1, dim_head = 64, layers = 1;
  std::optional<int64_t> cross_attention_dim = {};
  int64_t groups = 32;
  bool use_linear_projection = false, only_cross_attention = false, upcast_attention = false, xformers = false;
  double dropout = 0.0;
};

// GEGLU: twice the width, one half through GELU and times the other.
struct GatedGelu : Module {
  GatedGelu(Module& parent, std::string_view name, int64_t in, int64_t out);
  Tensor operator()(const Tensor& x) const;
  Linear proj;
};

struct GatedFeedForward : Module {
  GatedFeedForward(Module& parent, std::string_view name, int64_t width, double dropout);
  Tensor operator()(const Tensor& x) const;
  Module net;
  GatedGelu net_0;
  Dropout net_1;
  Linear net_2;
};

struct BasicTransformerBlock : Module {
  BasicTransformerBlock(Module& parent, std::string_view name, const TransformerSettings& s);
  Tensor operator()(const Tensor& x, const Tensor& encoder_hidden_states) const;  // (N, T, C)
  bool only_cross_attention;
  LayerNorm norm1;
  ImageAttention attn1;
  LayerNorm norm2;
  ImageAttention attn2;
  LayerNorm norm3;
  GatedFeedForward ff;
};

struct Transformer2DModel : Module {
  Transformer2DModel(Module& parent, std::string_view name, const TransformerSettings& s);
  Tensor operator()(const Tensor& x, const Tensor& encoder_hidden_states);  // (N, C, H, W)

 private:
  Tensor project_in(const Tensor& x) const;                    // (N, C, H, W) -> (N, H W, C)
  Tensor project_out(Tensor hidden, const Dims& sizes) const;  // and back

  TransformerSettings settings_;
  GroupNorm norm_;
  std::unique_ptr<Conv2d> conv_in_, conv_out_;      // proj_in and proj_out, which are convolutions
  std::unique_ptr<Linear> linear_in_, linear_out_;  // or linear layers
  ModuleList<BasicTransformerBlock> transformer_blocks_;
};

}  // namespace plimsoll
