// The body of transformers' decoders with rotary positions: token embeddings, layers that share masks and rotary tables, and a
// last norm. A model gives its settings and its layer; what else it does to the embeddings are overrides.
#pragma once

#include "nn/causal_lm.h"
#include "nn/decoder.h"
#include "nn/masking.h"
#include "ops/pointwise.h"

namespace plimsoll {

// Settings derive from DecoderConfig. A Layer is made of (parent, name, settings) and perhaps its number, and called with
// (x, tables, mask).
template <class Settings, class Layer>
struct DecoderStack : Module {
  DecoderStack(Module& parent, std::string_view name, const Settings& s) : Module(parent, name), config(s) {
    if (!s.local_rope || has_layers(false)) rotary_emb.emplace(*this, "rotary_emb", s.rope);
    if (s.local_rope && has_layers(true)) local_rotary_emb.emplace(*this, "rotary_emb", *s.local_rope);
  }

  Module& add_layers() {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
      if constexpr (std::is_constructible_v<Layer, Module&, std::string_view, const Settings&, size_t>)
        layers.add(config, static_cast<size_t>(i));
      else
        layers.add(config);
    }
    return *this;
  }

  bool has_layers(bool sliding) const {
    for (size_t i = 0; i < static_cast<size_t>(config.num_hidden_layers); ++i)
      if (config.slides(i) == sliding) return true;
    return false;
  }

  virtual Tensor embed(const Tensor& input_ids) const {
    return config.scales_embeddings ? mul_scalar((*embed_tokens)(input_ids)) : (*embed_tokens)(input_ids);
  }
  // From the embeddings, which Python's name keeps until the body returns, to what the first layer gets.
  virtual Tensor enter(Tensor& embeds) const { return dropout(embeds, config.embed_dropout); }

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
    const CosSin full = rotary_emb ? (*rotary_emb)(hidden, positions) : CosSin{},
                 local = local_rotary_emb ? (*local_rotary_emb)(hidden, positions) : CosSin{};
    build().position_ids = positions;
    for (size_t i = 0; i < layers.size(); ++i) {
      const bool slides = config.slides(i);
      auto run = [&layer = layers[i], tables = slides && config.local_rope ? local : full, mask = slides ? masks.local : masks.full,
                  positions](const Tensor& x) { return layer(x, tables, mask); };
      if (states) states->push_back(hidden);
      hidden = run_block(layers[i], run, hidden);
    }
    build().position_ids.reset();
    hidden = (*norm)(hidden);
    if (states) states->push_back(hidden);
    return hidden;
  }

  const Tensor& embedding() const { return embed_tokens->weight; }

  const Settings& config;
  std::unique_ptr<Embedding> embed_tokens = config.embedding(*this, config.names.embed, config.vocab_size, config.hidden_size);
  ModuleList<Layer> layers{*this, config.names.layers};
  std::unique_ptr<UnaryModule> norm = config.norm(add_layers(), config.names.norm, config.hidden_size);
  std::optional<RotaryEmbedding> rotary_emb, local_rotary_emb;
};

inline HeadSettings lm_head(const DecoderConfig& d) {
  return {.width = d.hidden_size, .vocab_size = d.vocab_size, .tied = d.tie_word_embeddings};
}

using Decoder = DecoderStack<DecoderConfig, DecoderBlock>;

}  // namespace plimsoll
