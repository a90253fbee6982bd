#include "plan/candidate.h"

#include <algorithm>
#include <cmath>

#include "allocator/timeline.h"
#include "job/distribution.h"
#include "job/settings.h"
#include "plan/short_runs.h"
#include "util/parallel.h"

namespace plimsoll {

namespace {

// Whose rates stand for those of a device that has none in the catalogue: of the same maker, the nearest in size.
const DeviceSpec* like(const TargetDevice& device) {
  const DeviceSpec* nearest = nullptr;
  const double size = device.capacity ? static_cast<double>(device.capacity->bytes.count) / 1e9 : 0;
  for (const DeviceSpec& d : catalogue()) {
    if (d.vendor != device.spec.vendor || !d.nominal_gb || !d.bandwidth_gbs || !d.bf16_tflops || !d.fp32_tflops) continue;
    if (!nearest || std::abs(*d.nominal_gb - size) < std::abs(*nearest->nominal_gb - size)) nearest = &d;
  }
  return nearest;
}

}  // namespace

std::optional<StepTime> time_on(const Job& job, const Simulation& simulation, const TargetDevice& device, const Calibration& calibration,
                                const Cluster& cluster) {
  if (std::optional<StepTime> own = step_time(job, simulation, device.spec, calibration, cluster).time) return own;
  const DeviceSpec* other = like(device);
  if (other == nullptr) return std::nullopt;
  std::optional<StepTime> time = step_time(job, simulation, *other, calibration, cluster).time;
  if (time) time->assumptions.push_back("times are those of " + other->name + ": the catalogue has no rates of " + device.name);
  return time;
}

Need need_of(const Fit& f, std::optional<StepTime> time) {
  return {f.memory.device, f.memory.allocated.bytes, f.verdict, f.verdict == Verdict::unknown ? f.reason : "", std::move(time)};
}

int64_t Candidate::global_batch() const { return checked_mul(checked_mul(job.batch, job.accumulation), replica_count(job)); }

Evaluator::Evaluator(Job job, std::vector<TargetDevice> devices, Calibration calibration, Cluster cluster, bool extrapolates,
                     OnProgress progress, const Runs* known)
    : job_(std::move(job)),
      devices_(std::move(devices)),
      calibration_(std::move(calibration)),
      cluster_(cluster),
      extrapolates_(extrapolates),
      known_(known),
      progress_(std::move(progress), "candidates executed") {}

void Evaluator::measure(Candidate& c, const Job& executed) const {
  const bool pytorch = executed.program.framework == Framework::pytorch;
  Runs runs(known_);
  Fitting fitting(runs, executed, {.work = pytorch});
  const Attempt twin = pytorch ? Attempt{} : attempt(timed_job(executed), {}, kTimed);  // none of a model that only JAX has
  for (const TargetDevice& d : devices_) {
    c.needs.push_back(need_of(need_on(fitting, d)));
    const std::shared_ptr<const Run> timed = pytorch ? fitting.run(d) : twin.run;
    if (!timed) continue;
    c.needs.back().time = time_on(c.job, timed->simulation, d, calibration_, cluster_);
    c.parameters = timed->simulation.parameters;
    c.events = timed->simulation.trace.events.size();
  }
  if (pytorch && c.changes.empty() && !devices_.empty())
    c.peak_phase = ideal_timeline(fitting.run(devices_.front())->simulation.trace).peak().phase;
  if (runs.executed() == 0) ++taken_;
}

void Evaluator::measure_shorter(Candidate& c, const Job& executed) const {
  ShortRuns runs(executed);
  for (const TargetDevice& d : devices_) c.needs.push_back(runs.on(d, calibration_, cluster_));
  c.parameters = runs.simulation(devices_.front()).parameters;
  if (c.changes.empty()) c.peak_phase = runs.peak_phase(devices_.front());
  c.extrapolated = true;
}

Candidate Evaluator::execute(const Patch& changes, bool in_full) const {
  Candidate c;
  c.changes = changes;
  Outcome<Job> changed = try_patched(job_, changes, "plan");
  if (!changed) {
    c.impossible = changed.refused->what();
    return c;
  }
  c.job = std::move(*changed);
  Job executed = c.job;
  follow_training(executed, job_);
  const bool shorter = extrapolates_ && !in_full && ShortRuns::worth(executed);
  if (const std::optional<Problem> problem = problem_in([&] { shorter ? measure_shorter(c, executed) : measure(c, executed); })) {
    c.impossible = problem->what;
    c.needs.clear();
  }
  return c;
}

// What ends one piece ends the question: whoever waits for some of `all` is told the same, and only what was executed is there to see.
std::vector<Candidate> Evaluator::execute_all(const std::vector<Patch>& all, bool in_full) {
  std::vector<Candidate> results(all.size());
  std::vector<char> done(all.size());
  progress_.expect(all.size());
  const auto execute_one = [&](size_t i) {
    results[i] = execute(all[i], in_full);
    done[i] = 1;
    progress_.advance();
  };
  try {
    parallel_for(all.size(), execute_one, progress_);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < all.size(); ++i)
      if (done[i] != 0 && !in_full) candidates_.try_emplace(all[i], std::move(results[i]));  // for all(): the best so far
    failed_ = std::current_exception();
    arrived_.notify_all();
    throw;
  }
  return results;
}

void Evaluator::check() const {
  if (failed_) std::rethrow_exception(failed_);
}

void Evaluator::prepare(const std::vector<Patch>& all) {
  std::vector<Patch> missing;
  std::unique_lock lock(mutex_);
  check();
  for (const Patch& c : all)
    if (!candidates_.contains(c) && under_way_.insert(c).second) missing.push_back(c);
  if (!missing.empty()) {
    lock.unlock();
    std::vector<Candidate> results = execute_all(missing, false);
    lock.lock();
    for (Candidate& c : results) {
      under_way_.erase(c.changes);
      candidates_.try_emplace(c.changes, std::move(c));
    }
    arrived_.notify_all();
  }
  const auto there = [&](const Patch& c) { return candidates_.contains(c); };
  arrived_.wait(lock, [&] { return failed_ || std::all_of(all.begin(), all.end(), there); });
  check();
}

void Evaluator::confirm(const std::vector<Patch>& all) {
  std::vector<Patch> missing;
  for (const Patch& c : all)
    if (evaluate(c).extrapolated && std::find(missing.begin(), missing.end(), c) == missing.end()) missing.push_back(c);
  std::vector<Candidate> results = execute_all(missing, true);
  const std::lock_guard lock(mutex_);
  for (Candidate& c : results) {
    Candidate& known = candidates_[c.changes];
    c.thought = std::move(known.needs);
    known = std::move(c);
  }
}

const Candidate& Evaluator::evaluate(const Patch& changes) {
  const auto known = [&]() -> const Candidate* {
    const std::lock_guard lock(mutex_);
    const auto it = candidates_.find(changes);
    return it == candidates_.end() ? nullptr : &it->second;
  };
  if (const Candidate* c = known()) return *c;
  prepare({changes});
  return *known();
}

size_t Evaluator::executed() const {
  const std::lock_guard lock(mutex_);
  return candidates_.size();
}

std::vector<const Candidate*> Evaluator::all() const {
  std::vector<const Candidate*> out;
  for (const auto& [changes, c] : candidates_) out.push_back(&c);
  return out;
}

}  // namespace plimsoll
