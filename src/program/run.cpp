#include "program/run.h"

#include <nlohmann/json.hpp>

#include "job/settings.h"
#include "program/program.h"

namespace plimsoll {

namespace {

Job complete(Job job, const Target& target) {
  if (!target.capability.empty()) job.platform.target = target.capability;
  return job;
}

// All that decides what is executed.
std::string key_of(const Job& job, const Target& target) {
  std::string key = job.family + "\n";
  nlohmann::json::to_cbor(nlohmann::json(values_of(job)), key);  // unlike as text, bytes that are no UTF-8 stay apart
  return key + "\n" + program_of(job).target_key(complete(job, target), target);
}

constexpr size_t kMostEvents = 200'000;  // of a trace that is kept: a few megabytes

}  // namespace

const CudaTimeline& Run::cuda() const {
  std::call_once(replayed_, [&] { cuda_ = cuda_timeline(simulation.trace, parse_alloc_conf(job.alloc_conf)); });
  return cuda_;
}

std::shared_ptr<const Run> execute(const Job& asked, const Target& target, const Detail& detail) {
  const Job job = complete(asked, target);
  require_none(problems(job));
  return program_of(job).execute(job, target, detail);
}

Attempt attempt(const std::function<std::shared_ptr<const Run>()>& execution) {
  Attempt a;
  a.problem = problem_in([&] { a.run = execution(); });
  return a;
}

Attempt attempt(const Job& job, const Target& target, const Detail& detail) {
  return attempt([&] { return execute(job, target, detail); });
}

void follow_training(Job& changed, const Job& before) {
  if (before.eval_batch > 0 && changed.eval_batch == before.batch) changed.eval_batch = changed.batch;
}

std::shared_ptr<const Run> Runs::find(const std::string& key, const Detail& detail) const {
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = entries_.equal_range(key);
    for (auto it = first; it != last; ++it)
      if (it->second.detail.covers(detail)) return it->second.run;
  }
  return others_ ? others_->find(key, detail) : nullptr;
}

void Runs::forget_large() {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& e) { return e.second.run->trace().events.size() > kMostEvents; });
}

void Runs::take(Runs&& finished) {
  const std::scoped_lock lock(mutex_, finished.mutex_);
  executed_ += std::exchange(finished.executed_, 0);
  entries_.merge(finished.entries_);
}

std::shared_ptr<const Run> Runs::execute(const Job& job, const Target& target, const Detail& detail) {
  const std::string key = key_of(job, target);
  if (std::shared_ptr<const Run> known = find(key, detail)) return known;
  {
    const std::lock_guard lock(mutex_);
    ++executed_;
  }
  std::shared_ptr<const Run> run = plimsoll::execute(job, target, detail);
  const std::lock_guard lock(mutex_);
  return entries_.emplace(key, Entry{detail, std::move(run)})->second.run;
}

Attempt Runs::attempt(const Job& job, const Target& target, const Detail& detail) {
  return plimsoll::attempt([&] { return execute(job, target, detail); });
}

size_t Runs::executed() const {
  const std::lock_guard lock(mutex_);
  return executed_;
}

}  // namespace plimsoll
