// Stochastic differential equations as torchsde solves them for STDiff: Euler-Heun forward without a graph, and backward by integrating the
// equation of the gradients back in time along the same random path.
#pragma once

#include "measure/layers.h"

namespace plimsoll::measure {

struct Equation {
  std::function<Tensor(const Tensor&)> drift, diffusion;  // (N, D) to (N, D)
  Tensors parameters;                                     // that want gradients
};

// y0: (N, D); the states at start, start + 1, ...: (points, N, D). The path of each of N follows from its seed.
Tensor integrate(const Equation& equation, const Tensor& y0, double start, int64_t points, double dt, const std::vector<uint64_t>& seeds);

}  // namespace plimsoll::measure
