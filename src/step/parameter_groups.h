// An optimizer whose parameters are in several groups, updated one after the other: a trainer's own, or DTensors before plain tensors,
// which is what a loop with tensor parallelism has to make, as foreach kernels refuse a mix.
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace plimsoll {

std::unique_ptr<Optimizer> by_groups(std::unique_ptr<Optimizer> optimizer, std::vector<std::vector<Parameter*>> groups);

// Those that are DTensors, and the others.
std::vector<std::vector<Parameter*>> dtensors_first(const std::vector<Parameter*>& all);

}  // namespace plimsoll
