// What decoders with rotary positions share: their settings, the attention and feed-forward of Llama, Mistral, Qwen2, Qwen3,
// Granite and Gemma, and the whole models of the first four, whose differences are settings.
#pragma once

#include "nn/layers.h"
#include "nn/model.h"
#include "nn/rotary.h"

namespace plimsoll {

class TextEncoder;

// How a body calls its parts in Python.
struct StackNames {
  const char* embed = "embed_tokens";
  const char* layers = "layers";
  const char* norm = "norm";
};

struct DecoderConfig {
  StackNames names;
  int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 0;  // 0: as many as query heads
  int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  bool qkv_bias = false, o_bias = false, mlp_bias = false, qk_norm = false, tie_word_embeddings = false;
  bool causal = true;
  bool softcap = false;          // eager attention: scores through tanh
  bool scales_branches = false;  // what attention and feed-forward give is scaled before it is added
  double attention_dropout = 0.0;
  std::string hidden_act = "silu";
  RopeSettings rope;
  bool full_mask = true;                  // some layers attend to everything
  std::optional<int64_t> sliding_window;  // some layers attend to a window
  std::vector<bool> sliding_layer;        // by layer; empty: all full, or all sliding when full_mask is off
  bool slides(size_t layer) const { return sliding_layer.empty() ? !full_mask : sliding_layer[layer]; }
};

// Reads what all of them share over the class defaults in `d`: sizes, heads, dropout, tied weights.
void read_decoder_config(const Config& config, DecoderConfig& d);
// Which layers have a sliding window by layer_types, or `fallback` where it is absent.
std::vector<bool> sliding_layers(const Config& config, std::vector<bool> fallback);
// sliding_window with the default of its class; null switches it off.
std::optional<int64_t> sliding_window(const Config& config, std::optional<int64_t> fallback);
// Qwen2 and Qwen3: the window must be switched on, and is on from layer max_window_layers unless layer_types says otherwise.
void read_optional_window(const Config& config, DecoderConfig& d);

std::unique_ptr<Model> make_decoder(Build& build, const DecoderConfig& config);
// The same body under a classification head; `config` is read for the labels and the padding token.
std::unique_ptr<Model> make_decoder_classifier(Build& build, const Config& config, const DecoderConfig& d);

// The same body as a text encoder, with the head that it was loaded with.
std::unique_ptr<TextEncoder> make_decoder_text_encoder(Module& parent, std::string_view name, const DecoderConfig& config);

struct DecoderAttention : Module {
  DecoderAttention(Module& parent, std::string_view name, const DecoderConfig& c);
  Tensor operator()(const Tensor& x, const CosSin& tables, const Tensor& mask, Tensor* weights) const;
  const DecoderConfig& config;
  Linear q_proj, k_proj, v_proj, o_proj;
  std::unique_ptr<RMSNorm> q_norm, k_norm;
};

// gate, up, down
struct GatedMLP : Module {
  GatedMLP(Module& parent, std::string_view name, int64_t width, int64_t inner, bool bias, std::string act);
  Tensor operator()(const Tensor& x) const;
  Linear gate_proj, up_proj, down_proj;
  std::string act;
};

}  // namespace plimsoll
