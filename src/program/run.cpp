#include "program/run.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "job/settings.h"
#include "tensor/kernel_memory.h"

namespace plimsoll {

namespace {

Job complete(Job job, const Target& target) {
  if (!target.capability.empty()) job.platform.target = target.capability;
  return job;
}

std::shared_ptr<Run> execute_rank(const Job& job, const Detail& detail) {
  return std::make_shared<Run>(job, simulate(job, detail.shapes, detail.work));
}

// Which of two ranks a device must have more memory for.
bool needs_more(const CudaTimeline& a, const CudaTimeline& b) {
  return std::pair(a.reserved_peak, a.allocated_peak) > std::pair(b.reserved_peak, b.allocated_peak);
}

// Executes ranks, each once, and keeps the run of the one that needs most: of equal ones, the first.
class RankExecutions {
 public:
  RankExecutions(const Job& job, const Detail& detail) : job_(job), detail_(detail) {}

  std::shared_ptr<const Run> run() {
    const auto spans = distinct_ranks(
        job_, [&](int64_t a, int64_t b) { return alike(a, b); }, [&](int64_t rank) { execute(rank); });
    for (const RankSpan& s : spans) {
      const Facts& f = done_.at(s.first);
      largest_->ranks.push_back({s, s.name(job_), f.parameters, f.cuda});
    }
    return largest_;
  }

 private:
  struct Facts {
    int64_t parameters = 0;
    CudaTimeline cuda;
  };

  void execute(int64_t rank) {
    std::shared_ptr<Run> run = execute_rank(with_rank(job_, rank), detail_);
    const CudaTimeline& cuda = run->cuda();
    const std::lock_guard lock(mutex_);
    done_[rank] = {run->simulation.parameters, cuda};
    const bool larger = !largest_ || needs_more(cuda, largest_->cuda()) || (!needs_more(largest_->cuda(), cuda) && rank < largest_rank_);
    if (larger) largest_ = std::move(run), largest_rank_ = rank;
  }

  const Facts& of(int64_t rank) {
    if (!done_.contains(rank)) execute(rank);
    return done_.at(rank);
  }

  bool alike(int64_t a, int64_t b) {
    const Facts &x = of(a), &y = of(b);
    return x.parameters == y.parameters && x.cuda.allocated_peak == y.cuda.allocated_peak && x.cuda.reserved_peak == y.cuda.reserved_peak;
  }

  const Job& job_;
  const Detail& detail_;
  std::mutex mutex_;
  std::map<int64_t, Facts> done_;
  std::shared_ptr<Run> largest_;
  int64_t largest_rank_ = 0;
};

// All that decides what is executed. Devices whose libraries take the same workspaces are one kind.
std::string key_of(const Job& job, const Target& target) {
  std::string key = job.family + "\n";
  nlohmann::json::to_cbor(nlohmann::json(values_of(job)), key);  // unlike as text, bytes that are no UTF-8 stay apart
  if (job.program.framework == Framework::jax) return key + fmt::format("\n{}", static_cast<int>(target.kind));
  const KernelMemory kernels = kernel_memory(complete(job, target).platform);
  return key + fmt::format("\n{} {} {} {} {}", kernels.blas, kernels.blas_lt, kernels.keeps_blas_lt, kernels.scratch,
                           job.recorded_item.value_or(-1));
}

}  // namespace

const CudaTimeline& Run::cuda() const {
  std::call_once(replayed_, [&] { cuda_ = cuda_timeline(simulation.trace, parse_alloc_conf(job.alloc_conf)); });
  return cuda_;
}

std::shared_ptr<const Run> execute(const Job& asked, const Target& target, const Detail& detail) {
  const Job job = complete(asked, target);
  if (job.program.framework == Framework::jax) return std::make_shared<Run>(job, compile(job, target.kind));
  if (!detail.all_ranks || rank_count(job) == 1) return execute_rank(job, detail);
  return RankExecutions(job, detail).run();
}

std::shared_ptr<const Run> Runs::execute(const Job& job, const Target& target, const Detail& detail) {
  const std::string key = key_of(job, target);
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = entries_.equal_range(key);
    for (auto it = first; it != last; ++it)
      if (it->second.detail.covers(detail)) return it->second.run;
    ++executed_;
  }
  std::shared_ptr<const Run> run = plimsoll::execute(job, target, detail);
  const std::lock_guard lock(mutex_);
  return entries_.emplace(key, Entry{detail, std::move(run)})->second.run;
}

size_t Runs::executed() const {
  const std::lock_guard lock(mutex_);
  return executed_;
}

}  // namespace plimsoll
