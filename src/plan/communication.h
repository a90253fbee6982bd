// What the ranks of PyTorch's own parallelism send each other in one step, as far as nothing hides it: DistributedDataParallel, ZeRO-1,
// fully_shard, FSDP1, tensor parallelism, and DeepSpeed's ZeRO. Those of trainers with layouts of their own are in layout_time.h, from the
// same parts.
#pragma once

#include "job/job.h"
#include "plan/interconnect.h"
#include "plan/step_time.h"
#include "step/train.h"

namespace plimsoll {

// Seconds. `t` has the times of the kernels.
double communication_seconds(const Job& job, const Simulation& simulation, const StepTime& t, const Interconnect& links);

// Blocks that ran in one micro-step, and the model around them: so many groups fully_shard has.
double groups_of(const Simulation& simulation);

// Of one group of fully_shard, whose neighbours are `inner` ranks apart: seconds of its gather for forward, of the one for backward where
// it was resharded (in smaller groups, if those were named), and of its gradients' reduction into shards and between copies.
struct GroupSeconds {
  double forward = 0, backward = 0, reduce = 0;
};
GroupSeconds group_seconds(const Job& job, const FsdpSettings& settings, int64_t inner, const Simulation& simulation,
                           const Interconnect& links);
// Of all groups in all micro-steps, behind forward and backward.
double sharding_seconds(const Job& job, const FsdpSettings& settings, int64_t inner, const Simulation& simulation, const StepTime& t,
                        const Interconnect& links);

// What of the kernels' time hides traffic: the last bucket of gradients is not ready before backward's end.
constexpr double kOverlap = 0.9;

// Tensor parallelism of one block. Attention and feed-forward are summed over the ranks in forward, and their inputs' gradients in
// backward; with sequence parallelism a gather and a reduce-scatter take the place of each sum. A checkpoint repeats forward's but for the
// last, and a selective one the gathers. `hidden`: bytes of the tokens of one micro-batch.
double tensor_block_seconds(const Checkpointing& c, bool sequence, double hidden, const RankGroup& ranks, const Interconnect& links);

}  // namespace plimsoll
