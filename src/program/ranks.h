// The processes of a job that differ in memory: ranks that keep different shards, or the stages of a pipeline.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "job/job.h"

namespace plimsoll {

// Processes that follow each other and are alike. `first` is the number of a rank, or of a stage.
struct RankSpan {
  int64_t first = 0, last = 0;
  std::string name(const Job& job) const;  // "rank 0", "ranks 1 to 7", "stage 2"
};

// How many differ at most; 1: the job asks about one, or all are alike. A job that names a rank other than 0, the default, or a stage asks
// about that one.
int64_t rank_count(const Job& job);
// How many of them are left out: where each may differ, the first 64 are executed.
int64_t ranks_not_executed(const Job& job);
// The number of the rank or stage that a job names; none: all, or they are alike.
std::optional<int64_t> named_rank(const Job& job);
// The same job, asking about one of them.
Job with_rank(Job job, int64_t rank);

// Finds the spans. `alike(a, b)` executes ranks as it needs to and says whether two are the same.
std::vector<RankSpan> distinct_ranks(const Job& job, const std::function<bool(int64_t, int64_t)>& alike,
                                     const std::function<void(int64_t)>& execute);

}  // namespace plimsoll
