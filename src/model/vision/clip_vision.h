// CLIP's model of images, which LLaVA sees through.
#pragma once

#include "nn/clip_encoder.h"

namespace plimsoll {

struct VisionStates {
  Tensor last_hidden_state;  // (N, positions, C)
  Tensor pooled;             // (N, C)
};

// transformers.models.clip, CLIPVisionModel
struct ClipVisionModel : Module {
  ClipVisionModel(Module& parent, std::string_view name, const Config& config);
  // `states`, where given, takes what every layer gets, and the last one's result.
  VisionStates operator()(const Tensor& pixel_values, Tensors* states);
  ClipVisionConfig config;
  ClipVisionEmbeddings embeddings;
  LayerNorm pre_layrnorm;
  ClipEncoder encoder;
  LayerNorm post_layernorm;
};

}  // namespace plimsoll
