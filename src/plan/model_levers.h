// Changes of a family's own configuration that save memory: fewer frames, fewer keys a query, smaller sets.
#pragma once

#include <vector>

#include "plan/levers.h"

namespace plimsoll {

// The configuration says the size of a picture: the job's seq says nothing then.
bool has_own_sides(const Job& job);

// Its family is the code of one system, which trains it from nothing: no weights are published that an adapter could be put on.
bool trained_from_scratch(const Job& job);

std::vector<Lever> model_levers(const Job& job);

}  // namespace plimsoll
