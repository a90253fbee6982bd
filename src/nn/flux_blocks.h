// The blocks of Flux, which Chroma shares: two streams (image, text) that attend together, and one stream of both.
#pragma once

#include "nn/ada_norm.h"
#include "nn/diffusers_attention.h"
#include "nn/diffusers_layers.h"
#include "nn/diffusers_rotary.h"

namespace plimsoll {

struct FluxSizes {
  int64_t width = 3072, heads = 24, head_dim = 128;
  bool pruned = false;  // Chroma: blocks are given their modulation
};

struct FluxAttention : Module {
  FluxAttention(Module& parent, std::string_view name, const FluxSizes& sizes, bool joint);
  // hidden: (B, S, C); encoder: (B, T, C) or undefined. Joint attention returns both streams, the other its one before a projection.
  Tensors operator()(const Tensor& hidden, const Tensor& encoder, const CosSin& rotary, const Tensor& mask);
  int64_t head_dim;
  FusedRMSNorm norm_q, norm_k;
  Linear to_q, to_k, to_v;
  struct Joint : Module {
    Joint(FluxAttention& parent, const FluxSizes& sizes);
    ModuleList<Linear> to_out;
    FusedRMSNorm norm_added_q, norm_added_k;
    Linear add_q_proj, add_k_proj, add_v_proj, to_add_out;
  };
  std::unique_ptr<Joint> joint;
};

struct FluxTransformerBlock : Module {
  FluxTransformerBlock(Module& parent, std::string_view name, const FluxSizes& sizes);
  // temb: (B, C) for both streams, or (B, 12, C). Returns {text, image}.
  Tensors operator()(const Tensor& hidden, const Tensor& encoder, const Tensor& temb, const CosSin& rotary, const Tensor& mask);
  bool pruned;
  AdaLayerNormZero norm1, norm1_context;
  FluxAttention attn;
  LayerNorm norm2;
  DiffusersFeedForward ff;
  LayerNorm norm2_context;
  DiffusersFeedForward ff_context;
};

struct FluxSingleTransformerBlock : Module {
  FluxSingleTransformerBlock(Module& parent, std::string_view name, const FluxSizes& sizes);
  Tensor operator()(const Tensor& hidden, const Tensor& temb, const CosSin& rotary, const Tensor& mask);  // (B, T + S, C)
  AdaLayerNormZero norm;
  Linear proj_mlp, proj_out;
  FluxAttention attn;
};

}  // namespace plimsoll
