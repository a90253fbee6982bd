// Layers that diffusers' transformers share, with their names there.
#pragma once

#include "job/config.h"
#include "nn/denoiser.h"
#include "nn/layers.h"
#include "nn/timestep_embedding.h"

namespace plimsoll {

// ---- settings -----------------------------------------------------------------------------------------------------
// A list of sizes; throws for anything else, and unless it has `count` of them (0: any number).
std::vector<int64_t> sizes_in(const Config& config, const char* key, std::vector<int64_t> fallback, size_t count = 0);
// A list of numbers of layers, none by default.
std::vector<int64_t> indices_in(const Config& config, const char* key);
// qk_norm: null or rms_norm; throws for the norms that no published network of these families has.
bool rms_norm_or_none(const Config& config, const char* key);
// Pixels over pixels a token, or a latent; throws when one would be cut.
int64_t tokens_along(const char* model, const char* side, int64_t pixels, int64_t per_token);

// ---- norms --------------------------------------------------------------------------------------------------------
// torch.nn.RMSNorm: one kernel.
struct FusedRMSNorm : Module {
  FusedRMSNorm(Module& parent, std::string_view name, int64_t width, bool affine = true);
  Tensor operator()(const Tensor& x) const;
  Tensor weight;
};

// diffusers' own RMSNorm, written out; weight: undefined for none.
Tensor diffusers_rms_norm(const Tensor& x, const Tensor& weight);
struct DiffusersRMSNorm : Module {
  DiffusersRMSNorm(Module& parent, std::string_view name, int64_t width, bool affine = true);
  Tensor operator()(const Tensor& x) const;
  Tensor weight;
};

// FP32LayerNorm: in fp32 and back.
struct FP32LayerNorm : Module {
  FP32LayerNorm(Module& parent, std::string_view name, int64_t width, bool affine);
  Tensor operator()(const Tensor& x) const;
  Tensor weight, bias;
};

// ---- feed-forward ---------------------------------------------------------------------------------------------------
enum class FeedForwardKind : uint8_t { gelu, geglu, linear_silu, swiglu };
FeedForwardKind feed_forward_kind(const Config& config);  // activation_fn, gelu-approximate by default

// FeedForward: net.0.proj, dropout, net.2.
struct DiffusersFeedForward : Module {
  DiffusersFeedForward(Module& parent, std::string_view name, int64_t width, FeedForwardKind kind = FeedForwardKind::gelu,
                       int64_t inner = 0, double dropout = 0.0);
  Tensor operator()(const Tensor& x) const;

 private:
  struct Activation : Module {
    Activation(Module& parent, int64_t width, int64_t inner, FeedForwardKind kind);
    Tensor operator()(const Tensor& x) const;
    FeedForwardKind kind;
    Linear proj;
  };
  struct Net : Module {
    Net(Module& parent, int64_t width, int64_t inner, FeedForwardKind kind, double dropout);
    Activation act;
    Dropout dropout;
    Linear out;
  } net_;
};

// ---- embeddings -----------------------------------------------------------------------------------------------------
// PixArtAlphaTextProjection: linear, SiLU or GELU, linear.
struct TextProjection : Module {
  TextProjection(Module& parent, std::string_view name, int64_t in, int64_t width, bool gelu = false);
  Tensor operator()(const Tensor& caption) const;
  Linear linear_1, linear_2;
  bool is_gelu;
};

// CombinedTimestepTextProjEmbeddings, with guidance CombinedTimestepGuidanceTextProjEmbeddings.
struct TimestepTextEmbeddings : Module {
  TimestepTextEmbeddings(Module& parent, std::string_view name, int64_t width, int64_t pooled_width, bool guidance);
  Tensor operator()(const Tensor& timestep, const Tensor& guidance, const Tensor& pooled) const;  // (N, width)
  Timesteps time_proj;
  TimestepEmbedding timestep_embedder;
  std::unique_ptr<TimestepEmbedding> guidance_embedder;
  TextProjection text_embedder;
};

}  // namespace plimsoll
