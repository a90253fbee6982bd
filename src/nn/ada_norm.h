// diffusers' normalization layers whose scale and shift come from an embedding of the time.
#pragma once

#include "nn/layers.h"

namespace plimsoll {

// normed * (1 + scale) + shift; scale and shift: (N, C), for all tokens of (N, T, C). `normed` is given up.
Tensor modulate(Tensor normed, const Tensor& scale, const Tensor& shift);
Tensor scale_and_shift(Tensor normed, const Tensor& scale, const Tensor& shift);  // the same for scales that broadcast as they are

// AdaLayerNormZero (6 parts), AdaLayerNormZeroSingle (3) and SD35AdaLayerNormZeroX (9).
struct AdaLayerNormZero : Module {
  // `pruned`: the parts are given, (N, parts, C), not made by a layer of its own.
  AdaLayerNormZero(Module& parent, std::string_view name, int64_t width, int64_t parts = 6, bool pruned = false);
  // The norm of x under the first shift and scale, then the parts that follow (gate, shift, scale, gate, ...); of nine parts the
  // last three make a second norm of x: {x, gate, shift, scale, gate, x2, gate2}.
  Tensors operator()(const Tensor& x, const Tensor& emb) const;
  int64_t parts;
  std::unique_ptr<Linear> linear;
  LayerNorm norm;
};

// The last norm of a network. Its embedding may be a given one, (N, 2, C): `pruned`.
struct AdaLayerNormContinuous : Module {
  AdaLayerNormContinuous(Module& parent, std::string_view name, int64_t width, int64_t embedding_width, bool pruned = false);
  Tensor operator()(const Tensor& x, const Tensor& emb) const;
  std::unique_ptr<Linear> linear;
  LayerNorm norm;
};

}  // namespace plimsoll
