// A bound that needs no execution: what weights, gradients and optimizer states, and of models like Llama the
// activations, take on one rank whatever else is done.
#pragma once

#include "job/job.h"
#include "util/bytes.h"

namespace plimsoll {

// `parameters`: elements of the whole model. Nothing where the bound is not known: quantised weights, blocks that take turns, JAX.
Bytes lower_bound(const Job& job, int64_t parameters);

// Of the whole model at the least, from those of the rank that was simulated; 0 where ranks differ.
int64_t whole_parameters(const Job& job, int64_t of_rank);

}  // namespace plimsoll
