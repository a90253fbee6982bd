// torch.distributed.optim.ZeroRedundancyOptimizer on one rank: an optimizer over this rank's share of the parameters. Shares are
// of whole parameters, so ranks differ; the updated values reach the other ranks by broadcasts in place.
#pragma once

#include <memory>

#include "job/parallel.h"
#include "optim/optimizer.h"

namespace plimsoll {

// For each rank its parameters, in the order its optimizer has them.
std::vector<std::vector<Parameter*>> zero1_shares(const std::vector<Parameter*>& parameters, int64_t world);

std::unique_ptr<Optimizer> make_zero1(std::unique_ptr<Optimizer> local, const Zero1Settings& settings);

}  // namespace plimsoll
