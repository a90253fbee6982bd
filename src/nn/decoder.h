// The decoder that Llama, Mistral, Qwen2 and Qwen3 share, module for module; their differences are settings.
#pragma once

#include "nn/model.h"
#include "nn/layers.h"
#include "nn/rotary.h"

namespace plimsoll {

struct DecoderConfig {
  int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32;
  int64_t num_attention_heads = 32, num_key_value_heads = 32, head_dim = 128;
  bool qkv_bias = false, o_bias = false, mlp_bias = false, qk_norm = false, tie_word_embeddings = false;
  double attention_dropout = 0.0;
  std::string hidden_act = "silu";
  bool full_mask = true;                         // some layers attend to everything
  std::optional<int64_t> sliding_window;         // some layers attend to a window
  std::vector<bool> sliding_layer;               // by layer; empty: all full, or all sliding when full_mask is off
};

std::unique_ptr<Model> make_decoder(Build& build, const DecoderConfig& config);

// gate, up, down
struct GatedMLP : Module {
  GatedMLP(Module& parent, std::string_view name, int64_t width, int64_t inner, bool bias, std::string act);
  Tensor operator()(const Tensor& x) const;
  Linear gate_proj, up_proj, down_proj;
  std::string act;
};

}  // namespace plimsoll
