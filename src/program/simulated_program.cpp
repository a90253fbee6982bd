#include "program/simulated_program.h"

#include <fmt/format.h>

#include "tensor/kernel_memory.h"

namespace plimsoll {

namespace {

// Which of two ranks a device must have more memory for.
bool needs_more(const CudaTimeline& a, const CudaTimeline& b) {
  return std::pair(a.reserved_peak, a.allocated_peak) > std::pair(b.reserved_peak, b.allocated_peak);
}

// Executes ranks, each once, and keeps the run of the one that needs most: of equal ones, the first.
class RankExecutions {
 public:
  RankExecutions(const SimulatedProgram& program, const Job& job, const Detail& detail)
      : program_(program), job_(job), detail_(detail), ranks_(program.ranks(job)) {}

  std::shared_ptr<const Run> run() {
    const auto spans = distinct_ranks(
        ranks_, [&](int64_t a, int64_t b) { return alike(a, b); }, [&](int64_t rank) { execute(rank); });
    for (const RankSpan& s : spans) {
      const Facts& f = done_.at(s.first);
      largest_->ranks.push_back({s, s.name(ranks_), f.parameters, f.cuda});
    }
    return largest_;
  }

 private:
  struct Facts {
    int64_t parameters = 0;
    CudaTimeline cuda;
  };

  void execute(int64_t rank) {
    Job job = job_;
    ranks_.choose(job, rank);
    auto run = std::make_shared<Run>(job, program_.simulate(job, detail_));
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

  const SimulatedProgram& program_;
  const Job& job_;
  const Detail& detail_;
  const Ranks ranks_;
  std::mutex mutex_;
  std::map<int64_t, Facts> done_;
  std::shared_ptr<Run> largest_;
  int64_t largest_rank_ = 0;
};

}  // namespace

// Devices whose libraries take the same workspaces are one kind.
std::string SimulatedProgram::target_key(const Job& job, const Target&) const {
  const KernelMemory kernels = kernel_memory(job.platform);
  return fmt::format("{} {} {} {} {}", kernels.blas, kernels.blas_lt, kernels.keeps_blas_lt, kernels.scratch,
                     job.recorded_item.value_or(-1));
}

std::shared_ptr<const Run> SimulatedProgram::execute(const Job& job, const Target&, const Detail& detail) const {
  if (!detail.all_ranks || ranks(job).count == 1) return std::make_shared<Run>(job, simulate(job, detail));
  return RankExecutions(*this, job, detail).run();
}

}  // namespace plimsoll
