#include "step/largest_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "util/checked.h"

namespace plimsoll {

namespace {

constexpr int64_t kMostRanks = 64;

// In blocks of the caching allocator.
int64_t peak_in_blocks(const Trace& trace) {
  constexpr int64_t kBlock = 512;
  int64_t now = 0, most = 0;
  for (const Event& e : trace.events) {
    if (e.kind == Event::Kind::alloc) most = std::max(most, now += round_up(trace.storages[e.storage].bytes, kBlock));
    if (e.kind == Event::Kind::free) now -= round_up(trace.storages[e.storage].bytes, kBlock);
  }
  return most;
}

// Keeps the largest of the simulations that it is given, the first of equal ones, in whatever order they come.
class LargestOf {
 public:
  RankSpan add(int64_t rank, Simulation s) {
    const RankSpan span{rank, rank, s.parameters, Bytes{peak_in_blocks(s.trace)}};
    const std::lock_guard lock(mutex_);
    const bool larger = rank_ < 0 || span.peak > peak_ || (span.peak == peak_ && rank < rank_);
    if (larger) largest_ = std::move(s), peak_ = span.peak, rank_ = rank;
    return span;
  }
  int64_t rank() const { return rank_; }
  Simulation take() { return std::move(largest_); }

 private:
  std::mutex mutex_;
  Simulation largest_;
  Bytes peak_;
  int64_t rank_ = -1;
};

// Ranks 0 to count - 1, each by itself. The error of the first that has one is thrown, as if they had run in order.
std::vector<RankSpan> run_each(int64_t count, LargestOf& largest, const std::function<Simulation(int64_t)>& run) {
  std::vector<RankSpan> spans(static_cast<size_t>(count));
  std::vector<std::exception_ptr> errors(spans.size());
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        spans[static_cast<size_t>(i)] = largest.add(i, run(i));
      } catch (...) {
        errors[static_cast<size_t>(i)] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
    for (int64_t i = 1; i < std::min(cores, count); ++i) threads.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
  return spans;
}

// fully_shard gives a rank of each parameter as much as the rank before it has, or less: where the sums are equal, all are.
void search(int64_t first, int64_t last, const std::function<RankSpan(int64_t)>& run, std::vector<RankSpan>& out) {
  RankSpan span = run(first);
  if (first == last || span.parameters == run(last).parameters) {
    span.last = last;
    out.push_back(span);
    return;
  }
  const int64_t middle = first + (last - first) / 2;
  search(first, middle, run, out);
  search(middle + 1, last, run, out);
}

std::vector<RankSpan> joined(const std::vector<RankSpan>& spans) {
  std::vector<RankSpan> out;
  for (const RankSpan& s : spans) {
    if (!out.empty() && out.back().parameters == s.parameters && out.back().peak == s.peak)
      out.back().last = s.last;
    else
      out.push_back(s);
  }
  return out;
}

int64_t count_of(const ParallelSettings& p) { return p.fsdp ? p.fsdp->shards() : p.fsdp1 ? p.fsdp1->shards() : p.world(); }

bool asks_about_all(Job job) {
  const int64_t* rank = rank_of(job.parallel);
  return rank && *rank == 0 && count_of(job.parallel) > 1;
}

std::vector<RankSpan> run_ranks(const Job& job, LargestOf& largest) {
  const auto simulation = [&](int64_t rank) {
    Job one = job;
    *rank_of(one.parallel) = rank;
    return simulate(one);
  };
  const int64_t count = count_of(job.parallel);
  std::vector<RankSpan> spans;
  if (!job.parallel.fsdp) return joined(run_each(std::min(count, kMostRanks), largest, simulation));
  std::map<int64_t, RankSpan> known;
  const auto once = [&](int64_t rank) {
    const auto found = known.find(rank);
    return found != known.end() ? found->second : known[rank] = largest.add(rank, simulation(rank));
  };
  search(0, count - 1, once, spans);
  return joined(spans);
}

}  // namespace

Simulation largest_stage(int64_t stages, bool wants_more, const std::function<Simulation(int64_t stage, bool whole)>& run) {
  LargestOf largest;
  std::vector<RankPeak> ranks;
  for (const RankSpan& s : run_each(stages, largest, [&](int64_t stage) { return run(stage, false); }))
    ranks.push_back({fmt::format("stage {}", s.first), s.parameters, s.peak});
  Simulation answer = wants_more ? run(largest.rank(), true) : largest.take();
  answer.ranks = std::move(ranks);
  return answer;
}

std::string name_of(const RankSpan& s) {
  return s.first == s.last ? fmt::format("rank {}", s.first) : fmt::format("ranks {} to {}", s.first, s.last);
}

int64_t* rank_of(ParallelSettings& p) {
  if (p.megatron || p.torchtitan) return nullptr;
  if (p.zero1) return &p.zero1->rank;
  if (p.fsdp) return &p.fsdp->rank;
  if (p.fsdp1) return p.fsdp1->sharded() && p.fsdp1->original_parameters ? &p.fsdp1->rank : nullptr;
  return p.deepspeed ? &p.deepspeed->rank : nullptr;
}

std::vector<RankSpan> distinct_ranks(const Job& job) {
  LargestOf largest;
  return asks_about_all(job) ? run_ranks(job, largest) : std::vector<RankSpan>();
}

int64_t ranks_not_executed(const ParallelSettings& p) {
  ParallelSettings own = p;
  return rank_of(own) && !p.fsdp ? std::max<int64_t>(0, count_of(p) - kMostRanks) : 0;
}

Simulation simulate_largest_rank(Job& job, bool details) {
  if (!asks_about_all(job)) return simulate(job, details);
  LargestOf largest;
  const std::vector<RankSpan> spans = run_ranks(job, largest);
  *rank_of(job.parallel) = largest.rank();
  Simulation answer = details ? simulate(job, true) : largest.take();
  for (const RankSpan& s : spans) answer.ranks.push_back({name_of(s), s.parameters, s.peak});
  return answer;
}

}  // namespace plimsoll
