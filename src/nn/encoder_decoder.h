// Layers of encoders and decoders as BART made them, which Whisper has taken over with norms in other places. T5 has its own.
#pragma once

#include "job/config.h"
#include "nn/layers.h"
#include "nn/transformer.h"

namespace plimsoll {

struct EncoderDecoderDefaults {
  int64_t vocab_size, d_model, layers, heads, ffn_dim;
  double dropout;
};

struct EncoderDecoderConfig {
  EncoderDecoderConfig(const Config& config, const EncoderDecoderDefaults& defaults);
  int64_t vocab_size, d_model, encoder_layers, decoder_layers, encoder_heads, decoder_heads, encoder_ffn_dim, decoder_ffn_dim;
  double dropout, attention_dropout, activation_dropout;
  std::string activation_function;
  bool tie_word_embeddings;
  // Whisper: norms before attention and feed-forward; queries are scaled before they are multiplied, and what is multiplied is contiguous;
  // keys have no bias.
  bool is_whisper = false;
};

// BartAttention and WhisperAttention: of a sequence to itself, or to the encoder's states.
struct EncoderDecoderAttention : Module {
  EncoderDecoderAttention(Module& parent, std::string_view name, const EncoderDecoderConfig& c, int64_t heads, bool causal)
      : Module(parent, name), config(c), head_dim(c.d_model / heads), causal(causal) {}
  Tensor operator()(const Tensor& x, const Tensor& encoder_states, const Tensor& mask, Tensor* weights) const;  // (B, T, C)
  Tensor heads_of(Tensor x, int64_t batch) const;                                                               // (B, H, T, D)
  const EncoderDecoderConfig& config;
  int64_t head_dim;
  bool causal;
  Linear k_proj{*this, "k_proj", config.d_model, config.d_model, !config.is_whisper};
  Linear v_proj{*this, "v_proj", config.d_model, config.d_model};
  Linear q_proj{*this, "q_proj", config.d_model, config.d_model};
  Linear out_proj{*this, "out_proj", config.d_model, config.d_model};
};

struct EncoderLayer : Module {
  EncoderLayer(Module& parent, std::string_view name, const EncoderDecoderConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& x, const Tensor& mask) const;
  Tensor without_infinity(Tensor hidden) const;  // of fp16
  const EncoderDecoderConfig& config;
  EncoderDecoderAttention self_attn{*this, "self_attn", config, config.encoder_heads, false};
  LayerNorm self_attn_layer_norm{*this, "self_attn_layer_norm", config.d_model};
  Linear fc1{*this, "fc1", config.d_model, config.encoder_ffn_dim};
  Linear fc2{*this, "fc2", config.encoder_ffn_dim, config.d_model};
  LayerNorm final_layer_norm{*this, "final_layer_norm", config.d_model};
};

struct DecoderLayer : Module {
  DecoderLayer(Module& parent, std::string_view name, const EncoderDecoderConfig& c) : Module(parent, name), config(c) {}
  Tensor operator()(const Tensor& x, const Tensor& mask, const Tensor& encoder_states, const Tensor& encoder_mask) const;
  const EncoderDecoderConfig& config;
  EncoderDecoderAttention self_attn{*this, "self_attn", config, config.decoder_heads, true};
  LayerNorm self_attn_layer_norm{*this, "self_attn_layer_norm", config.d_model};
  EncoderDecoderAttention encoder_attn{*this, "encoder_attn", config, config.decoder_heads, false};
  LayerNorm encoder_attn_layer_norm{*this, "encoder_attn_layer_norm", config.d_model};
  Linear fc1{*this, "fc1", config.d_model, config.decoder_ffn_dim};
  Linear fc2{*this, "fc2", config.decoder_ffn_dim, config.d_model};
  LayerNorm final_layer_norm{*this, "final_layer_norm", config.d_model};
};

Tensor run_encoder(ModuleList<EncoderLayer>& layers, Tensor hidden, const Tensor& mask);
Tensor run_decoder(ModuleList<DecoderLayer>& layers, Tensor hidden, const Tensor& mask, const Tensor& encoder_states,
                   const Tensor& encoder_mask);

// shift_tokens_right: labels moved by one token behind the start token. (B, T)
Tensor shift_tokens_right(const Tensor& labels);

}  // namespace plimsoll
