// What Command R and its successor share: a layer norm in fp32, and rotary positions of neighbours in fp32.
#pragma once

#include "nn/decoder.h"

namespace plimsoll {

// A layer norm without bias, written out in fp32.
struct CohereLayerNorm : UnaryModule {
  CohereLayerNorm(Module& parent, std::string_view name, const Dims& sizes) : UnaryModule(parent, name) {
    weight = parameter("weight", sizes);
  }
  CohereLayerNorm(Module& parent, std::string_view name, int64_t width) : CohereLayerNorm(parent, name, Dims{width}) {}
  Tensor operator()(const Tensor& x) const override;
  Tensor weight;
};

// Command R's settings over the class defaults in `d`, which are the same for both.
DecoderConfig cohere_settings(const Config& config);

}  // namespace plimsoll
