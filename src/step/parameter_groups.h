// An optimizer with two parameter groups, DTensors first: foreach kernels refuse a mix, so that is what a loop with tensor parallelism
// has to make.
#pragma once

#include <memory>

#include "job/job.h"
#include "optim/optimizer.h"

namespace plimsoll {

std::unique_ptr<Optimizer> make_two_groups(const OptimizerSpec& spec);

}  // namespace plimsoll
