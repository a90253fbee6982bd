#include "plan/candidate.h"

#include <algorithm>
#include <cmath>

#include "allocator/timeline.h"
#include "job/distribution.h"
#include "job/settings.h"
#include "plan/short_runs.h"
#include "program/program.h"
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

// None for a model that only JAX has.
std::optional<Simulation> work_of_jax(const Job& job) {
  try {
    return timed_simulation(job);
  } catch (const Error&) {
    return std::nullopt;
  }
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

Recipe merged(Recipe a, const Recipe& b) {
  for (const auto& [key, value] : b.items()) {
    if (key == "config" && a.contains(key)) {
      a[key].update(value);
    } else {
      a[key] = value;
    }
  }
  return a;
}

Job with(const Job& job, const Recipe& changes) {
  Job changed = job;
  for (const auto& [key, value] : changes.items()) apply_setting(changed, key, value, "plan");
  return changed;
}

int64_t Candidate::global_batch() const { return checked_mul(checked_mul(job.batch, job.accumulation), replica_count(job)); }

Evaluator::Evaluator(Job job, std::vector<TargetDevice> devices, Calibration calibration, Cluster cluster, bool extrapolates)
    : job_(std::move(job)),
      devices_(std::move(devices)),
      calibration_(std::move(calibration)),
      cluster_(cluster),
      extrapolates_(extrapolates) {}

void Evaluator::measure(Candidate& c, const Job& executed) const {
  const bool pytorch = executed.program.framework == Framework::pytorch;
  Fitting fitting(executed, {.work = pytorch});
  const std::optional<Simulation> twin = pytorch ? std::nullopt : work_of_jax(executed);
  for (const TargetDevice& d : devices_) {
    const Fit f = fitting.need(d);
    c.needs.push_back({f.memory.device, f.memory.allocated.bytes, f.verdict, f.verdict == Verdict::unknown ? f.reason : "", {}});
    if (!pytorch && !twin) continue;
    const std::shared_ptr<const Run> own = pytorch ? fitting.run(d) : nullptr;
    const Simulation& run = own ? own->simulation : *twin;
    c.needs.back().time = time_on(c.job, run, d, calibration_, cluster_);
    c.parameters = run.parameters;
    c.events = run.trace.events.size();
  }
  if (pytorch && c.changes.empty() && !devices_.empty())
    c.peak_phase = ideal_timeline(fitting.run(devices_.front())->simulation.trace).peak().phase;
}

void Evaluator::measure_shorter(Candidate& c, const Job& executed) const {
  ShortRuns runs(executed);
  for (const TargetDevice& d : devices_) c.needs.push_back(runs.on(d, calibration_, cluster_));
  c.parameters = runs.simulation(devices_.front()).parameters;
  if (c.changes.empty()) c.peak_phase = runs.peak_phase(devices_.front());
  c.extrapolated = true;
}

Candidate Evaluator::execute(const Recipe& changes, bool in_full) const {
  Candidate c;
  c.changes = changes;
  try {
    c.job = with(job_, changes);
    require_none(problems(c.job));
    Job executed = c.job;
    follow_training(executed, job_);
    if (extrapolates_ && !in_full && ShortRuns::worth(executed))
      measure_shorter(c, executed);
    else
      measure(c, executed);
  } catch (const std::exception& e) {
    c.impossible = e.what();
    c.needs.clear();
  }
  return c;
}

void Evaluator::tell() {
  if (!progress) return;
  const std::lock_guard lock(progress_mutex_);
  if (!cancelled_ && !progress(++told_, 0, "candidates executed")) cancelled_ = true;
}

// Throws Cancelled when progress has ended it; then nothing of `all` counts.
std::vector<Candidate> Evaluator::execute_all(const std::vector<Recipe>& all, bool in_full) {
  std::vector<Candidate> results(all.size());
  parallel_for(all.size(), [&](size_t i) {
    if (cancelled_) return;
    results[i] = execute(all[i], in_full);
    tell();
  });
  if (cancelled_) {
    { const std::lock_guard lock(mutex_); }  // whoever is about to wait does so, and is woken
    arrived_.notify_all();
    throw Cancelled{};
  }
  return results;
}

void Evaluator::prepare(const std::vector<Recipe>& all) {
  std::vector<Recipe> missing;
  std::vector<std::string> names;
  std::unique_lock lock(mutex_);
  for (const Recipe& c : all) {
    names.push_back(c.dump());
    if (!candidates_.contains(names.back()) && under_way_.insert(names.back()).second) missing.push_back(c);
  }
  if (!missing.empty()) {
    lock.unlock();
    std::vector<Candidate> results = execute_all(missing, false);
    lock.lock();
    for (Candidate& c : results) {
      const std::string name = c.changes.dump();
      under_way_.erase(name);
      candidates_.try_emplace(name, std::move(c));
    }
    arrived_.notify_all();
  }
  arrived_.wait(
      lock, [&] { return cancelled_ || std::all_of(names.begin(), names.end(), [&](const auto& n) { return candidates_.contains(n); }); });
  if (cancelled_) throw Cancelled{};
}

void Evaluator::confirm(const std::vector<Recipe>& all) {
  std::vector<Recipe> missing;
  for (const Recipe& c : all)
    if (of(c).extrapolated && std::find(missing.begin(), missing.end(), c) == missing.end()) missing.push_back(c);
  std::vector<Candidate> results = execute_all(missing, true);
  const std::lock_guard lock(mutex_);
  for (Candidate& c : results) {
    Candidate& known = candidates_[c.changes.dump()];
    c.thought = std::move(known.needs);
    known = std::move(c);
  }
}

const Candidate& Evaluator::of(const Recipe& changes) {
  const std::string name = changes.dump();
  const auto known = [&]() -> const Candidate* {
    const std::lock_guard lock(mutex_);
    const auto it = candidates_.find(name);
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
  for (const auto& [name, c] : candidates_) out.push_back(&c);
  return out;
}

}  // namespace plimsoll
