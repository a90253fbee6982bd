// Models that loop over tokens in Python run millions of ops a step. Each token adds the same to every phase's peak there, and its
// kernels may pass over the whole sequence once more, so that runs over short sequences tell what a long one needs: memory on a straight
// line, time on a parabola. An estimate to search with: what is answered is executed in full.
#pragma once

#include "plan/candidate.h"

namespace plimsoll {

// Whether a run over the job's own sequences has millions of events because every token adds some. The job is resolved.
bool loops_over_tokens(const Job& job);

// Of a need that was not executed.
Verdict verdict_of(const ByteRange& need, const TargetDevice& device);

class ShortRuns {
 public:
  static constexpr int64_t kFew = 16, kStep = 8, kMore = kFew + 2 * kStep;  // tokens of the first run, more of each, of the last

  // Whether the job is long enough for it to be worth while.
  static bool worth(const Job& job) { return job.seq > 8 * kMore; }
  explicit ShortRuns(const Job& job);

  Need on(const TargetDevice& device, const Calibration& calibration, const Cluster& cluster);
  const Simulation& simulation(const TargetDevice& device) { return runs_.back().fitting.run(device)->simulation; }
  Phase peak_phase(const TargetDevice& device) { return peak(device).phase; }

 private:
  struct Peak {
    int64_t bytes = 0;
    Phase phase = Phase::setup;
  };
  struct ShortRun {
    Job job;
    Fitting fitting;
  };
  Peak peak(const TargetDevice& device);
  double on_parabola(const std::vector<double>& values) const;
  StepTime time(const std::vector<StepTime>& of_runs) const;

  int64_t tokens_;              // of the long run
  std::vector<ShortRun> runs_;  // the shortest first
};

}  // namespace plimsoll
