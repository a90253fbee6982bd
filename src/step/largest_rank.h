// Ranks of one job that differ, each executed: the one with the largest peak is the answer, and all of them are in its table.
#pragma once

#include <functional>

#include "step/train.h"

namespace plimsoll {

// Every stage of a pipeline, in as many threads as there are cores; `run(stage, true)` is what is wanted of the largest, which is executed
// once more if that is more than its peak.
Simulation largest_stage(int64_t stages, bool wants_more, const std::function<Simulation(int64_t stage, bool whole)>& run);

// Ranks that follow each other and are alike.
struct RankSpan {
  int64_t first = 0, last = 0;
  int64_t parameters = 0;  // elements
  Bytes peak;              // in blocks of the caching allocator
};
std::string name_of(const RankSpan& span);  // "rank 0", "ranks 1 to 7"

// The number of the rank that the job asks about, where ranks keep different parts (ZeRO-1, FSDP2, DeepSpeed's ZeRO, FSDP1 with original
// parameters); none: they are alike, or differ by the stage of a pipeline.
int64_t* rank_of(ParallelSettings& parallel);

// All ranks of such a job, those that are alike as one; empty for others, and for a job that asks about a rank that is not 0, the default.
// Where each of them may differ, the first 64.
std::vector<RankSpan> distinct_ranks(const Job& job);
// How many that leaves out.
int64_t ranks_not_executed(const ParallelSettings& parallel);

// simulate(), of the largest of these: `job` then asks about that one.
Simulation simulate_largest_rank(Job& job, bool details);

}  // namespace plimsoll
