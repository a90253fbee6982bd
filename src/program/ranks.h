// The processes of a job that differ in memory: ranks that keep different shards, or the stages of a pipeline. Which they are is the
// program's to say (program/program.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "job/job.h"

namespace plimsoll {

struct Ranks {
  int64_t count = 1;                            // that may differ and are executed; 1: the job asks about one, or all are alike
  int64_t left_out = 0;                         // that may differ and are not: of many the first 64 are executed
  std::optional<int64_t> named;                 // the one that the job asks about; none: all, or they are alike
  bool stages = false;                          // of a pipeline: each is a row of its own
  bool descending = false;                      // none keeps more than the one before it: where two are alike, all between them are
  std::function<void(Job&, int64_t)> choose{};  // makes the job ask about one
};

Ranks ranks_of(const Job& job);
// The stages of a pipeline, unless the job names one.
Ranks pipeline_ranks(int64_t stages, std::optional<int64_t> named, std::function<void(Job&, int64_t)> choose);
// The same job, asking about one of them.
Job with_rank(Job job, int64_t rank);

// Processes that follow each other and are alike. `first` is the number of a rank, or of a stage.
struct RankSpan {
  int64_t first = 0, last = 0;
  std::string name(const Ranks& ranks) const;  // "rank 0", "ranks 1 to 7", "stage 2"
};

// Finds the spans. `alike(a, b)` executes ranks as it needs to and says whether two are the same.
std::vector<RankSpan> distinct_ranks(const Ranks& ranks, const std::function<bool(int64_t, int64_t)>& alike,
                                     const std::function<void(int64_t)>& execute);

}  // namespace plimsoll
