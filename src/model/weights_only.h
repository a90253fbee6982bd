// A model whose architecture is not known, by the shapes of its weights alone: parameters, gradients and optimizer are what they are;
// activations are a stand-in. Every layer is called once, one after another, on all tokens, and keeps its input and its result.
#pragma once

namespace plimsoll {

inline constexpr const char* kWeightsOnly = "weights-only";

// Activations of real architectures as multiples of the stand-in's. The language models of the registry lie within, with attention that
// does not materialise its weights (tests/model/weights_only_test.cpp).
struct StandInRange {
  double low, high;
};
inline constexpr StandInRange kStandInActivations{0.5, 2.5};
// Without headers the parameters are those of a plain decoder of the same sizes, and a real one may have so many times as many.
inline constexpr StandInRange kStandInParameters{0.7, 1.4};

}  // namespace plimsoll
