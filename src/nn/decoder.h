// Decoders that their configuration describes: attention, feed-forwards and layers by its fields, and whole models of them.
#pragma once

#include <functional>

#include "nn/decoder_config.h"
#include "nn/model.h"

namespace plimsoll {

class TextEncoder;

std::unique_ptr<Model> make_decoder(Build& build, const DecoderConfig& config);
// The same body under a classification head; `config` is read for the labels and the padding token, whose default is `padding`.
std::unique_ptr<Model> make_decoder_classifier(Build& build, const Config& config, const DecoderConfig& d,
                                               std::optional<int64_t> padding = {});
// The same body as a text encoder, perhaps with the head that it was loaded with.
std::unique_ptr<TextEncoder> make_decoder_text_encoder(Module& parent, std::string_view name, const DecoderConfig& config,
                                                       bool with_head = true);

// x itself where there is no such norm.
inline Tensor normed(const std::unique_ptr<UnaryModule>& norm, const Tensor& x) { return norm ? (*norm)(x) : x; }

// Attention of a layer, whatever its class. The weights are what eager attention gives beside the result.
struct LayerAttention : Module {
  using Module::Module;
  virtual Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const = 0;  // (B, T, C)
};

struct DecoderAttention : LayerAttention {
  DecoderAttention(Module& parent, std::string_view name, const DecoderConfig& c, size_t layer = 0);
  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const override;

 private:
  struct Heads {
    Tensor q, k, v;  // (B, H, T, D), (B, KV, T, D), (B, KV, T, D)
  };
  Heads project(const Tensor& x) const;

  const DecoderConfig& config_;
  bool rotates_;
  std::unique_ptr<Linear> q_proj_, k_proj_, v_proj_, o_proj_, qkv_proj_;
  std::unique_ptr<UnaryModule> q_norm_, k_norm_;
};

// gate, up, down
struct GatedMLP : UnaryModule {
  GatedMLP(Module& parent, std::string_view name, int64_t width, int64_t inner, bool bias, std::string act);
  Tensor operator()(const Tensor& x) const override;
  Linear gate_proj, up_proj, down_proj;
  std::string act;
};

// Attention and a feed-forward, each beside a residual, with norms where the configuration has them.
struct DecoderBlock : Module {
  DecoderBlock(Module& parent, std::string_view name, const DecoderConfig& c, size_t layer = 0);
  // With parts of the caller's; they are made in this order.
  using MakeAttention = std::function<std::unique_ptr<LayerAttention>(Module& layer)>;
  using MakeMlp = std::function<std::unique_ptr<UnaryModule>(Module& layer)>;
  DecoderBlock(Module& parent, std::string_view name, const DecoderConfig& c, const MakeAttention& attention, const MakeMlp& mlp);
  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const;  // (B, T, C)

 private:
  std::unique_ptr<UnaryModule> make_norm(const char* norm_name);
  std::unique_ptr<Dropout> make_dropout(const char* dropout_name);
  Tensor add_branch(const Tensor& residual, const Tensor& branch, const Dropout* dropout) const;

  const DecoderConfig& config_;
  std::unique_ptr<LayerAttention> self_attn_;
  std::unique_ptr<UnaryModule> mlp_;
  std::unique_ptr<UnaryModule> before_attention_, after_attention_, before_mlp_, after_mlp_;
  std::unique_ptr<Dropout> attention_dropout_, mlp_dropout_;
};

}  // namespace plimsoll
