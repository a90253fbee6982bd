// What the Gemma models share beside the decoder: an RMS norm that scales by 1 + weight in fp32, and scaled embeddings.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

// x / sqrt(mean(x^2) + eps) over the last dimension, in the type of x.
Tensor rms_normalised(const Tensor& x);

struct GemmaRMSNorm : UnaryModule {
  GemmaRMSNorm(Module& parent, std::string_view name, int64_t width);
  Tensor operator()(const Tensor& x) const override;
  Tensor weight;

 private:
  Tensor normalise(const Tensor& x) const;
};

struct GemmaTextScaledWordEmbedding : Embedding {
  GemmaTextScaledWordEmbedding(Module& parent, std::string_view name, int64_t rows, int64_t width);
  Tensor scaled(const Tensor& embeds, DType dtype) const override;
  Tensor embed_scale;  // buffer, ()
};

}  // namespace plimsoll
