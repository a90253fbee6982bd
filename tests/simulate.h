// What most tests of models and steps look at: one process of a job, executed.
#pragma once

#include "program/run.h"

namespace plimsoll {

inline Simulation simulate(const Job& job, bool shapes = false, bool work = false) {
  return execute(job, {}, {.shapes = shapes, .work = work, .all_ranks = false})->simulation;
}

}  // namespace plimsoll
