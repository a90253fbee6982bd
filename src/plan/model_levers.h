// Changes of a family's own configuration that save memory: fewer frames, fewer keys a query, smaller sets.
#pragma once

#include <vector>

#include "plan/levers.h"

namespace plimsoll {

std::vector<Lever> model_levers(const Job& job);

}  // namespace plimsoll
