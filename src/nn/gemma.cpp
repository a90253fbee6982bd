#include "nn/gemma.h"

#include "nn/liger.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace plimsoll {

Tensor rms_normalised(const Tensor& x) {
  Tensor scale;  // (B, T, 1)
  {
    const Tensor variance = mean(pow(x, 2), {-1}, true);
    scale = add_scalar(variance);
  }
  scale = rsqrt(scale);
  return mul(x, scale);
}

GemmaRMSNorm::GemmaRMSNorm(Module& parent, std::string_view name, int64_t width) : UnaryModule(parent, name) {
  weight = parameter("weight", {width});
}

Tensor GemmaRMSNorm::operator()(const Tensor& input) const {
  Forward here(*this);
  return run_layer(
      *this, [this](const Tensor& x) { return normalise(x); }, input);
}

Tensor GemmaRMSNorm::normalise(const Tensor& x) const {
  if (build().loss.liger.rms_norm) return liger_rms_norm(x, weight, false);
  Tensor output = rms_normalised(to(x, DType::float32));
  {
    const Tensor scale = add_scalar(to(weight, DType::float32));
    output = mul(output, scale);
  }
  return to(output, x.dtype());
}

GemmaTextScaledWordEmbedding::GemmaTextScaledWordEmbedding(Module& parent, std::string_view name, int64_t rows, int64_t width)
    : Embedding(parent, name, rows, width) {
  embed_scale = buffer("embed_scale", {});
}

Tensor GemmaTextScaledWordEmbedding::scaled(const Tensor& embeds, DType dtype) const { return mul(embeds, to(embed_scale, dtype)); }

}  // namespace plimsoll
