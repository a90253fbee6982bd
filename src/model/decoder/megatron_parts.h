// Parts of a layer of megatron.core, with the names it has for them.
#pragma once

#include "model/decoder/megatron.h"

namespace plimsoll::megatron {

struct Shared {
  const MegatronConfig& config;
  const MegatronSettings& settings;
  SharedBuffers& buffers;

  GemmShare share() const { return {settings.tensor, settings.sequence, settings.fused_gradients, settings.local, &buffers}; }
  // One that every rank has whole.
  GemmShare whole() const { return {1, false, settings.fused_gradients, settings.local, &buffers}; }
};

// A result whose bias is added later, with the residual.
struct Biased {
  Tensor value, bias;
};

struct Norm : Module {
  Norm(Module& parent, std::string_view name, int64_t width, bool rms)
      : Module(parent, name), weights{parameter("weight", {width}), rms ? Tensor() : parameter("bias", {width})} {}
  Tensor operator()(const Tensor& x) const {
    Forward in(*this);
    return te_norm(x, weights);
  }
  NormWeights weights;
};

// A weight of a column or row parallel layer, perhaps with the norm before it that Transformer Engine computes with it.
struct ParallelLinear : Module {
  enum class Kind : uint8_t { norm_column, column, row, whole };
  ParallelLinear(Module& parent, std::string_view name, const Shared& shared, Kind kind, int64_t in, int64_t out, bool with_bias,
                 bool adds_bias);
  Tensor operator()(const Tensor& x) const;

  const Shared& shared;
  Kind kind;
  NormWeights norm;
  Tensor weight, bias;
  bool adds_bias;  // in the product; else whoever calls does
};

struct SelfAttention : Module {
  SelfAttention(Module& parent, std::string_view name, const Shared& shared);
  Biased operator()(const Tensor& x) const;

 private:
  Tensor core(const Tensor& mixed) const;
  const Shared& shared_;
  int64_t heads_, groups_;  // of this rank
  ParallelLinear linear_qkv_;
  std::unique_ptr<Norm> q_norm_, k_norm_;
  ParallelLinear linear_proj_;
};

// Of a decoder, to what an encoder gave.
struct CrossAttention : Module {
  CrossAttention(Module& parent, std::string_view name, const Shared& shared);
  Biased operator()(const Tensor& x, const Tensor& encoded) const;

 private:
  const Shared& shared_;
  int64_t heads_;  // of this rank
  ParallelLinear linear_q_, linear_kv_, linear_proj_;
};

struct LatentAttention : Module {
  LatentAttention(Module& parent, std::string_view name, const Shared& shared);
  Biased operator()(const Tensor& x) const;

 private:
  const Shared& shared_;
  int64_t heads_;
  Norm input_layernorm_;
  std::unique_ptr<ParallelLinear> linear_q_proj_, linear_q_down_proj_, linear_q_up_proj_;
  ParallelLinear linear_kv_down_proj_, linear_kv_up_proj_, linear_proj_;
};

// q, k, v are (tokens, batch, heads, width) of this rank's tokens; gives (tokens, batch, heads * width).
Tensor attend(const Shared& shared, const Tensor& q, const Tensor& k, const Tensor& v);

struct Mlp : Module {
  // `norms`: the norm before it is a part of its first layer.
  Mlp(Module& parent, std::string_view name, const Shared& shared, int64_t ffn, bool norms);
  Biased operator()(const Tensor& x) const;

 private:
  const Shared& shared_;
  ParallelLinear linear_fc1_, linear_fc2_;
};

struct MoeLayer : Module {
  MoeLayer(Module& parent, std::string_view name, const Shared& shared);
  Tensor operator()(const Tensor& x) const;
  const std::vector<Parameter*>& of_experts() const { return experts_.own_parameters(); }

 private:
  struct Router : Module {
    using Module::Module;
    Tensor weight;
    void make(int64_t experts, int64_t hidden) { weight = parameter("weight", {experts, hidden}); }
  };
  struct Experts : Module {
    using Module::Module;
    Tensors fc1, fc2;
    void make(int64_t experts, int64_t first, int64_t ffn, int64_t hidden);
  };
  Tensor activated(const Tensor& x, const Tensor& weights) const;
  const Shared& shared_;
  Router router_;
  Experts experts_;
  std::unique_ptr<Mlp> shared_experts_;
};

}  // namespace plimsoll::megatron
