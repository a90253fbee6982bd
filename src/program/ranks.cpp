#include "program/ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "util/parallel.h"

namespace plimsoll {

namespace {

constexpr int64_t kMostRanks = 64;

// Where ranks keep different parts (ZeRO-1, FSDP2, DeepSpeed's ZeRO, FSDP1 with original parameters), the number of the rank in question.
int64_t* rank_of(Job& job) {
  if (job.program.has_stages()) return nullptr;
  ParallelSettings& p = job.parallel;
  if (p.zero1) return &p.zero1->rank;
  if (p.fsdp) return &p.fsdp->rank;
  if (p.fsdp1) return p.fsdp1->sharded() && p.fsdp1->original_parameters ? &p.fsdp1->rank : nullptr;
  return p.deepspeed ? &p.deepspeed->rank : nullptr;
}

std::optional<int64_t>* stage_of(ProgramSettings& p) {
  return p.megatron ? &p.megatron->stage : p.torchtitan ? &p.torchtitan->stage : nullptr;
}

int64_t shards_of(const ParallelSettings& p) { return p.fsdp ? p.fsdp->shards() : p.fsdp1 ? p.fsdp1->shards() : p.world(); }
int64_t stages_of(const ProgramSettings& p) { return p.megatron ? p.megatron->pipeline : p.torchtitan->pipeline; }

// fully_shard gives a rank of each parameter as much as the rank before it has, or less: where the ends are alike, all between are.
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

std::string RankSpan::name(const Job& job) const {
  if (job.program.has_stages()) return fmt::format("stage {}", first);
  return first == last ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, last);
}

int64_t rank_count(const Job& asked) {
  Job job = asked;
  if (const std::optional<int64_t>* stage = stage_of(job.program)) return *stage ? 1 : stages_of(job.program);
  const int64_t* rank = rank_of(job);
  if (!rank || *rank != 0) return 1;
  return job.parallel.fsdp ? shards_of(job.parallel) : std::min(shards_of(job.parallel), kMostRanks);
}

int64_t ranks_not_executed(const Job& asked) {
  Job job = asked;
  return rank_of(job) && !job.parallel.fsdp ? std::max<int64_t>(0, shards_of(job.parallel) - kMostRanks) : 0;
}

std::optional<int64_t> named_rank(const Job& asked) {
  Job job = asked;
  if (const std::optional<int64_t>* stage = stage_of(job.program)) return *stage;
  const int64_t* rank = rank_of(job);
  return rank && *rank != 0 ? std::optional(*rank) : std::nullopt;
}

Job with_rank(Job job, int64_t rank) {
  if (std::optional<int64_t>* stage = stage_of(job.program)) {
    *stage = rank;
  } else if (int64_t* number = rank_of(job)) {
    *number = rank;
  }
  return job;
}

std::vector<RankSpan> distinct_ranks(const Job& job, const std::function<bool(int64_t, int64_t)>& alike,
                                     const std::function<void(int64_t)>& execute) {
  const int64_t count = rank_count(job);
  std::vector<RankSpan> spans;
  const bool stages = job.program.has_stages();
  if (job.parallel.fsdp && !stages) {
    search(0, count - 1, alike, spans);
  } else {
    parallel_for(static_cast<size_t>(count), [&](size_t rank) { execute(static_cast<int64_t>(rank)); });
    for (int64_t rank = 0; rank < count; ++rank) spans.push_back({rank, rank});
  }
  std::vector<RankSpan> out;
  for (const RankSpan& s : spans) {
    if (!out.empty() && !stages && alike(out.back().first, s.first))
      out.back().last = s.last;
    else
      out.push_back(s);
  }
  return out;
}

}  // namespace plimsoll
