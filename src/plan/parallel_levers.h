// Changes of how a job is spread over its ranks, for a job that already is: what each rank keeps, and in which type.
#pragma once

#include <vector>

#include "plan/levers.h"

namespace plimsoll {

std::vector<Lever> parallel_levers(const Job& job);

}  // namespace plimsoll
