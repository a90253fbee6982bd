// One builder per optimizer; registry.cpp lists them.
#pragma once

#include "optim/optimizer.h"

namespace plimsoll {

std::unique_ptr<Optimizer> make_adam(const Config& args);
std::unique_ptr<Optimizer> make_adamw(const Config& args);

}  // namespace plimsoll
