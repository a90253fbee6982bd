// The language model of Qwen2-VL and Qwen2.5-VL: a decoder whose rotary tables are three, of time, height and width.
#pragma once

#include "nn/decoder.h"

namespace plimsoll {

// Sizes of text_config, or of a flat configuration, over the class's defaults.
DecoderConfig qwen_vl_text_config(const Config& config);

// Qwen2VLTextModel and Qwen2_5_VLTextModel
struct QwenVLTextModel : Module {
  QwenVLTextModel(Module& parent, std::string_view name, const DecoderConfig& c);
  // position_ids: (3, B, T); undefined: the model counts. `states`, where given, takes what every layer gets, and the result.
  Tensor operator()(const Tensor& embeds, const Tensor& position_ids, const Tensor& attention_mask, Tensors* states = nullptr);
  Module& add_layers(const DecoderConfig& c);
  CosSin rotary(const Tensor& x, const Tensor& positions) const;  // (3, B, T, D)
  Embedding embed_tokens;
  ModuleList<DecoderBlock> layers;
  RMSNorm norm;
  RotaryEmbedding rotary_emb;
};

}  // namespace plimsoll
