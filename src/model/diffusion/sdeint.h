// torchsde.sdeint_adjoint: a stochastic differential equation integrated step by step, whose backward integrates the adjoint equation
// back in time instead of keeping what the steps computed. Stratonovich, diagonal noise, fixed steps: euler_heun forward, midpoint back.
#pragma once

#include <functional>

#include "model/diffusion/brownian_interval.h"
#include "tensor/node.h"

namespace plimsoll {

struct Sde {
  std::function<Tensor(const Tensor&)> drift, diffusion;  // (N, D) to (N, D)
  Tensors parameters;                                     // that want gradients
};

struct TimeGrid {
  double start = 0;    // then start + 1, start + 2, ...
  int64_t points = 2;  // the states that are returned
  double dt = 0.1;     // of a step
  bool single = true;  // times are fp32 numbers: their sums are rounded, and some intervals take a step more
};

// y0: (N, D); the states at each time of the grid: (points, N, D). The path lives with the graph, and in Python beyond it: its tree is
// full of reference cycles, which only the garbage collector undoes. It is returned for the caller to keep as long.
struct SdeSolution {
  Tensor states;
  std::shared_ptr<BrownianInterval> path;
};
SdeSolution sdeint_adjoint(const Sde& sde, const Tensor& y0, const TimeGrid& grid);

}  // namespace plimsoll
