// What the optimizers of optax keep for each parameter, by the names that torch.optim has for the same methods.
#pragma once

#include <string>
#include <vector>

#include "job/job.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"

namespace plimsoll {

struct OptaxState {
  const char* name;  // "mu", "nu"
  Dims sizes;
  DType dtype;
};

// Throws an Error for an optimizer or an argument that optax does not have.
std::vector<OptaxState> optax_states(const OptimizerSpec& spec, const Dims& parameter, DType dtype);

// Whether the update has anything to do: `none` is forward and derivative alone.
bool updates_parameters(const OptimizerSpec& spec);

}  // namespace plimsoll
