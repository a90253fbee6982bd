#include "program/ranks.h"

#include <fmt/format.h>

#include "program/program.h"
#include "util/parallel.h"

namespace plimsoll {

namespace {

// By halves.
void search(int64_t first, int64_t last, const std::function<bool(int64_t, int64_t)>& alike, std::vector<RankSpan>& out) {
  if (first == last || alike(first, last)) {
    out.push_back({first, last});
    return;
  }
  const int64_t middle = first + (last - first) / 2;
  search(first, middle, alike, out);
  search(middle + 1, last, alike, out);
}

}  // namespace

Ranks ranks_of(const Job& job) { return program_of(job).ranks(job); }

Ranks pipeline_ranks(int64_t stages, std::optional<int64_t> named, std::function<void(Job&, int64_t)> choose) {
  Ranks r;
  r.count = named ? 1 : stages;
  r.named = named;
  r.stages = true;
  r.choose = std::move(choose);
  return r;
}

Job with_rank(Job job, int64_t rank) {
  if (const Ranks ranks = ranks_of(job); ranks.choose) ranks.choose(job, rank);
  return job;
}

std::string RankSpan::name(const Ranks& ranks) const {
  if (ranks.stages) return fmt::format("stage {}", first);
  return first == last ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, last);
}

std::vector<RankSpan> distinct_ranks(const Ranks& ranks, const std::function<bool(int64_t, int64_t)>& alike,
                                     const std::function<void(int64_t)>& execute) {
  std::vector<RankSpan> spans;
  if (ranks.descending) {
    search(0, ranks.count - 1, alike, spans);
  } else {
    parallel_for(static_cast<size_t>(ranks.count), [&](size_t rank) { execute(static_cast<int64_t>(rank)); });
    for (int64_t rank = 0; rank < ranks.count; ++rank) spans.push_back({rank, rank});
  }
  std::vector<RankSpan> out;
  for (const RankSpan& s : spans) {
    if (!out.empty() && !ranks.stages && alike(out.back().first, s.first))
      out.back().last = s.last;
    else
      out.push_back(s);
  }
  return out;
}

}  // namespace plimsoll
