#include "plan/candidate.h"

#include <atomic>
#include <set>
#include <thread>

#include "job/settings.h"

namespace plimsoll {

Changes merged(Changes a, const Changes& b) {
  for (const auto& [key, value] : b.items()) {
    if (key == "config" && a.contains(key)) {
      a[key].update(value);
    } else {
      a[key] = value;
    }
  }
  return a;
}

Job with(const Job& job, const Changes& changes) {
  Job changed = job;
  for (const auto& [key, value] : changes.items()) apply_setting(changed, key, value, "plan");
  return changed;
}

int64_t Candidate::global_batch() const { return checked_mul(checked_mul(job.batch, job.accumulation), job.parallel.world()); }

Evaluator::Evaluator(Job job, std::vector<TargetDevice> devices, Bytes reserve, Calibration calibration)
    : job_(std::move(job)), devices_(std::move(devices)), calibration_(std::move(calibration)) {
  for (TargetDevice& d : devices_) d.others += reserve;
}

Candidate Evaluator::execute(const Changes& changes) const {
  Candidate c;
  c.changes = changes;
  try {
    c.job = with(job_, changes);
    // An evaluation in the batch of training is part of the question, as in estimate().
    Job executed = c.job;
    if (executed.eval_batch == 0 || executed.eval_batch == job_.batch) executed.eval_batch = executed.batch;
    const bool timed = executed.framework == Framework::pytorch;
    Fitting fitting(executed, timed);
    for (const TargetDevice& d : devices_) {
      const Fit f = fitting.need(d);
      c.needs.push_back({f.memory.device, f.memory.allocated.bytes, f.verdict, {}});
      if (!timed) continue;
      c.needs.back().time = step_time(c.job, fitting.simulation(d), d.spec, calibration_).time;
      c.parameters = fitting.simulation(d).parameters;
    }
  } catch (const Error& e) {
    c.impossible = e.what();
    c.needs.clear();
  }
  return c;
}

void Evaluator::prepare(const std::vector<Changes>& all) {
  std::set<std::string> names;
  std::vector<std::pair<std::string, const Changes*>> missing;
  for (const Changes& c : all) {
    std::string name = c.dump();
    if (!candidates_.contains(name) && names.insert(name).second) missing.emplace_back(std::move(name), &c);
  }
  std::vector<Candidate> results(missing.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < missing.size(); i = next++) results[i] = execute(*missing[i].second);
  };
  {
    std::vector<std::jthread> threads;
    const size_t cores = std::max(1u, std::thread::hardware_concurrency());
    for (size_t i = 1; i < std::min(cores, missing.size()); ++i) threads.emplace_back(work);
    work();
  }
  for (size_t i = 0; i < missing.size(); ++i) candidates_.emplace(missing[i].first, std::move(results[i]));
  if (progress && !missing.empty()) progress(candidates_.size());
}

const Candidate& Evaluator::of(const Changes& changes) {
  const std::string name = changes.dump();
  const auto it = candidates_.find(name);
  if (it != candidates_.end()) return it->second;
  prepare({changes});
  return candidates_.at(name);
}

std::vector<const Candidate*> Evaluator::all() const {
  std::vector<const Candidate*> out;
  for (const auto& [name, c] : candidates_) out.push_back(&c);
  return out;
}

}  // namespace plimsoll
