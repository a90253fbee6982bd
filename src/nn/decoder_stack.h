// The body of transformers' decoders with rotary positions: token embeddings, layers that share masks and rotary tables, and a
// last norm. A model gives its layer and norm; what else it does to the embeddings are overrides.
#pragma once

#include "nn/causal_lm.h"
#include "nn/decoder.h"
#include "nn/masking.h"
#include "ops/pointwise.h"

namespace plimsoll {

// Settings derive from DecoderConfig. A Layer is made of (parent, name, settings) and perhaps its number, and called with
// (x, tables, mask).
template <class Settings, class Layer, class Norm, class Embed = Embedding>
struct DecoderStack : Module {
  DecoderStack(Module& parent, std::string_view name, const Settings& s)
      : Module(parent, name),
        config(s),
        embed_tokens(*this, s.names.embed, s.vocab_size, s.hidden_size),
        layers(*this, s.names.layers),
        norm(add_layers(), s.names.norm, s.hidden_size),
        rotary_emb(*this, "rotary_emb", s.rope) {}

  Module& add_layers() {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
      if constexpr (std::is_constructible_v<Layer, Module&, std::string_view, const Settings&, size_t>)
        layers.add(config, static_cast<size_t>(i));
      else
        layers.add(config);
    }
    return *this;
  }

  virtual Tensor embed(const Tensor& input_ids) const { return embed_tokens(input_ids); }
  // From the embeddings, which Python's name keeps until the body returns, to what the first layer gets.
  virtual Tensor enter(Tensor& embeds) const { return embeds; }

  struct Masks {
    Tensor full, local;  // undefined where the kernel can do without
  };
  // For layers that see everything and for those with a window.
  virtual Masks make_masks(MaskArgs args) const {
    Masks masks;
    if (config.full_mask) masks.full = create_causal_mask(build(), args);
    args.sliding_window = config.sliding_window;
    if (config.sliding_window) masks.local = create_causal_mask(build(), args);
    return masks;
  }

  // `states`, where given, takes what every layer gets and the result (output_hidden_states). The mask (B, T) is about padding.
  Tensor operator()(const Tensor& input_ids, Tensors* states = nullptr, const Tensor& attention_mask = {}) {
    Forward here(*this);
    Tensor embeds = embed(input_ids);  // (B, T, C)
    const Tensor positions = position_ids(build(), embeds.size(1));
    MaskArgs args{embeds.size(0), embeds.size(1), embeds.size(1), embeds.dtype(), positions, {}};
    args.attention_mask = attention_mask;
    const Masks masks = make_masks(args);
    Tensor hidden = enter(embeds);
    const CosSin tables = rotary_emb(hidden, positions);
    build().position_ids = positions;
    for (size_t i = 0; i < layers.size(); ++i) {
      auto run = [&layer = layers[i], tables, mask = config.slides(i) ? masks.local : masks.full, positions](const Tensor& x) {
        return layer(x, tables, mask);
      };
      if (states) states->push_back(hidden);
      hidden = run_block(layers[i], run, hidden);
    }
    build().position_ids.reset();
    hidden = norm(hidden);
    if (states) states->push_back(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return embed_tokens.weight; }

  const Settings& config;
  Embed embed_tokens;
  ModuleList<Layer> layers;
  Norm norm;
  RotaryEmbedding rotary_emb;
};

inline HeadSettings lm_head(const DecoderConfig& d) {
  return {.width = d.hidden_size, .vocab_size = d.vocab_size, .tied = d.tie_word_embeddings};
}

// LlamaDecoderLayer: attention and a gated feed-forward, each after a norm and beside a residual. Some attention asks for the layer's
// number.
template <class Norm, class Attention = DecoderAttention, class Settings = DecoderConfig>
struct PreNormLayer : Module {
  template <class... Number,
            class = std::enable_if_t<std::is_constructible_v<Attention, Module&, std::string_view, const Settings&, Number...>>>
  PreNormLayer(Module& parent, std::string_view name, const Settings& c, Number... number)
      : Module(parent, name), config(c), self_attn(*this, "self_attn", c, number...) {}

  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask) const {
    Forward here(*this);
    Tensor weights, residual = x;
    Tensor hidden = input_layernorm(x);  // (B, T, C)
    hidden = run_attention(self_attn, hidden, &weights, tables, mask);
    hidden = add_branch(residual, hidden);
    residual = hidden;
    hidden = post_attention_layernorm(hidden);
    hidden = run_part(mlp, hidden);
    hidden = add_branch(residual, hidden);
    return hidden;
  }

  Tensor add_branch(const Tensor& residual, const Tensor& branch) const {
    return config.scales_branches ? add(residual, mul_scalar(branch)) : add(residual, branch);
  }

  const DecoderConfig& config;
  Attention self_attn;
  GatedMLP mlp{*this, "mlp", config.hidden_size, config.intermediate_size, config.mlp_bias, config.hidden_act};
  Norm input_layernorm{*this, "input_layernorm", config.hidden_size};
  Norm post_attention_layernorm{*this, "post_attention_layernorm", config.hidden_size};
};

}  // namespace plimsoll
