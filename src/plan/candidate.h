// Recipes that are executed instead of guessed: a candidate is the user's job with some settings changed, what it then needs on each
// device asked about, and how long its step takes there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "estimate/fit.h"
#include "job/patch.h"
#include "plan/step_time.h"
#include "util/progress_counter.h"

namespace plimsoll {

// Steps in which sequences or images are cut: what data is padded to.
inline int64_t shape_unit(const Job& job) { return job.inputs == InputKind::image ? 32 : 64; }

struct Need {
  ByteRange device;
  Bytes allocated;
  Verdict verdict = Verdict::unknown;
  std::string unknown;           // why there is no verdict
  std::optional<StepTime> time;  // none: the device's figures are not known
};

Need need_of(const Fit& fit, std::optional<StepTime> time = {});

// Even its upper end is within the limit.
inline bool fits(const Need& need, Bytes limit) { return need.verdict == Verdict::fits && need.device.high <= limit; }

// What the upper end of a need may reach: the least that the device has, without what others use of it.
inline Bytes room_on(const TargetDevice& device) { return device.capacity->low - device.others; }

struct Candidate {
  Patch changes;  // of the user's job; empty: the job as it is
  Job job;
  std::string impossible;   // why it cannot be run at all; then `needs` is empty
  std::vector<Need> needs;  // by device
  int64_t parameters = 0;
  size_t events = 0;                   // of the trace: what executing it costs
  Phase peak_phase = Phase::backward;  // of the job as it is; of the others nobody asks
  bool extrapolated = false;           // from short runs: short_runs.h
  std::vector<Need> thought;           // before it was confirmed

  // To be compared with what was only extrapolated.
  const std::vector<Need>& comparable() const { return thought.empty() ? needs : thought; }

  int64_t global_batch() const;
};

// How long the step of that run takes there; where the catalogue has no rates of the device, as long as on the nearest that has.
std::optional<StepTime> time_on(const Job& job, const Simulation& simulation, const TargetDevice& device, const Calibration& calibration,
                                const Cluster& cluster);

// Executes candidates, each once, on as many threads as there are cores; several threads may ask. Results do not depend on the order.
class Evaluator {
 public:
  // `job` is resolved. `extrapolates`: long sequences from short ones; confirm() then executes in full what matters.
  // Told after each candidate, `progress` may end it: whoever asks for another gets Cancelled.
  // `known`: executions of others that are taken where there are such; they must outlive this.
  Evaluator(Job job, std::vector<TargetDevice> devices, Calibration calibration = {}, Cluster cluster = {}, bool extrapolates = false,
            OnProgress progress = {}, const Runs* known = nullptr);
  virtual ~Evaluator() = default;

  const Candidate& evaluate(const Patch& changes);
  void prepare(const std::vector<Patch>& all);  // executes those that are new, in parallel; what others are executing is waited for
  // Executes in full those that were extrapolated, in parallel; what evaluate() gave for them is then exact. Nobody else may ask meanwhile.
  void confirm(const std::vector<Patch>& all);
  bool extrapolates() const { return extrapolates_; }

  const Job& job() const { return job_; }
  const std::vector<TargetDevice>& devices() const { return devices_; }
  std::vector<const Candidate*> all() const;  // in the order of their changes
  size_t executed() const;
  size_t taken() const { return taken_; }  // of them, those that were executed by others

 protected:
  // Executes. That it cannot be run is an answer; whatever else is thrown ends the question for all who ask. Tests have it throw.
  virtual Fit need_on(Fitting& fitting, const TargetDevice& device) const { return fitting.need_on(device); }

 private:
  Candidate execute(const Patch& changes, bool in_full) const;
  void measure(Candidate& c, const Job& executed) const;
  void measure_shorter(Candidate& c, const Job& executed) const;
  std::vector<Candidate> execute_all(const std::vector<Patch>& all, bool in_full);
  void check() const;

  Job job_;
  std::vector<TargetDevice> devices_;
  Calibration calibration_;
  Cluster cluster_;
  bool extrapolates_;
  const Runs* known_;
  mutable std::atomic<size_t> taken_{0};
  mutable std::mutex mutex_;
  std::map<Patch, Candidate> candidates_;  // by their changes; never removed
  std::set<Patch> under_way_;              // by somebody's prepare()
  std::condition_variable arrived_;
  std::exception_ptr failed_;  // what ended an execution for all who ask: a bug, or Cancelled
  ProgressCounter progress_;
};

}  // namespace plimsoll
