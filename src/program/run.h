// One execution of a job. A Run never changes; estimates, verdicts, traces and pages are functions of it, so that whatever is asked about a
// job, the bytes are those of one execution. `execute` is the only way to one: it judges the job first, then has its program run what the
// job asks for, every rank that differs, of which the one that needs most is the answer. What is asked is decided by the job alone: an
// evaluation is executed when it has one.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "allocator/cuda_timeline.h"
#include "allocator/timeline.h"
#include "program/ranks.h"
#include "step/train.h"
#include "xla/compile.h"

namespace plimsoll {

// What a job is executed for, where that changes memory.
struct Target {
  std::string capability;             // CUDA's "9.0" or AMD's "gfx942"; empty: most NVIDIA cards
  DeviceKind kind = DeviceKind::gpu;  // of framework jax
};

// How much of the execution is written down.
struct Detail {
  bool shapes = false;    // of tensors, and a list of the parameters
  bool work = false;      // what a step computes and moves
  bool all_ranks = true;  // else the rank that the job names
  bool covers(const Detail& other) const { return (shapes || !other.shapes) && (work || !other.work) && all_ranks == other.all_ranks; }
};

// Ranks that are alike.
struct RankRun {
  RankSpan span;
  std::string name;
  int64_t parameters = 0;  // elements
  CudaTimeline cuda;
};

class Run {
 public:
  Run(Job executed, Simulation simulated) : job(std::move(executed)), simulation(std::move(simulated)) {}
  Run(Job executed, XlaMemory compiled) : job(std::move(executed)), xla(std::move(compiled)) {}

  const Job job;                       // what was executed: it asks about the rank that needs most
  const Simulation simulation;         // of that rank; empty with framework jax
  const std::optional<XlaMemory> xla;  // the compiled step of framework jax
  std::vector<RankRun> ranks;          // those that differ, where several were executed

  const Trace& trace() const { return xla ? xla->trace : simulation.trace; }
  // Under PyTorch's caching allocator, with the job's settings, on a device without end.
  const CudaTimeline& cuda() const;

 private:
  mutable std::once_flag replayed_;
  mutable CudaTimeline cuda_;
};

// The job's model must be resolved. Throws the first of its problems (program/program.h) as an Error.
std::shared_ptr<const Run> execute(const Job& job, const Target& target = {}, const Detail& detail = {});

// Either was executed, or cannot be: also for what only building the model or running it can tell.
struct Attempt {
  std::shared_ptr<const Run> run;  // null: there is a problem
  std::optional<Problem> problem;
  explicit operator bool() const { return run != nullptr; }
};
Attempt attempt(const Job& job, const Target& target = {}, const Detail& detail = {});
// An Error is a problem. What is not one (a bug, no memory, a cancelled answer) is thrown on.
Attempt attempt(const std::function<std::shared_ptr<const Run>()>& execution);

// An evaluation in the batch of training stays in it when a change gives that another size.
void follow_training(Job& changed, const Job& before);

// The executions behind one question, each made once. Safe from several threads.
class Runs {
 public:
  Runs() = default;
  // `others`: executions that are looked at first, and must outlive this.
  explicit Runs(const Runs* others) : others_(others) {}

  std::shared_ptr<const Run> execute(const Job& job, const Target& target = {}, const Detail& detail = {});
  Attempt attempt(const Job& job, const Target& target = {}, const Detail& detail = {});
  size_t executed() const;     // jobs, not ranks
  void forget_large();         // lets go of runs whose traces are large; they still count as executed
  void take(Runs&& finished);  // what another executed

 private:
  std::shared_ptr<const Run> find(const std::string& key, const Detail& detail) const;

  struct Entry {
    Detail detail;
    std::shared_ptr<const Run> run;
  };
  mutable std::mutex mutex_;
  std::multimap<std::string, Entry> entries_;  // by all that decides what is executed
  size_t executed_ = 0;
  const Runs* others_ = nullptr;
};

}  // namespace plimsoll
