// The language model of Qwen2-VL and Qwen2.5-VL: a decoder whose rotary tables are three, of time, height and width.
#pragma once

#include "nn/decoder.h"

namespace plimsoll {

// Sizes of text_config, or of a flat configuration, over the class's defaults.
DecoderConfig qwen_vl_text_config(const Config& config);

// Qwen2VLTextModel and Qwen2_5_VLTextModel
struct QwenVLTextModel : Module {
  QwenVLTextModel(Module& parent, std::string_view name, const DecoderConfig& c) : Module(parent, name), config(c) {}
  // position_ids: (3, B, T); undefined: the model counts. `states`, where given, takes what every layer gets, and the result.
  Tensor operator()(const Tensor& embeds, const Tensor& position_ids, const Tensor& attention_mask, Tensors* states = nullptr);
  Module& add_layers();
  CosSin rotary(const Tensor& x, const Tensor& positions) const;  // (3, B, T, D)
  const DecoderConfig& config;
  Embedding embed_tokens{*this, "embed_tokens", config.vocab_size, config.hidden_size};
  ModuleList<DecoderBlock> layers{*this, "layers"};
  RMSNorm norm{add_layers(), "norm", config.hidden_size};
  RotaryEmbedding rotary_emb{*this, "rotary_emb", config.rope};
};

}  // namespace plimsoll
