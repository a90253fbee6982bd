// torchtitan's train_step on one rank: fully_shard over tensor-parallel layers, a loss outside the model, and, in a pipeline, the schedules
// of torch.distributed.pipelining (PyTorch 2.14, stage.py and schedules.py).
#pragma once

#include "step/train.h"

namespace plimsoll {

// Of the stage that the job names, else of the one with the largest peak.
Simulation simulate_torchtitan(const Job& job, bool details, bool work);

// How its trainer calls fully_shard: fp32 shards that are gathered in bf16 and reduced in fp32.
FsdpSettings torchtitan_sharding(const TorchtitanSettings& settings);

}  // namespace plimsoll
