#include "measure/twin.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "job/settings.h"
#include "program/run.h"
#include "util/bytes.h"

namespace plimsoll::measure {

Job simulated_twin(Job job, int64_t steps) {
  job.platform.target = "cpu";
  job.program.framework = Framework::pytorch;
  apply_setting(job, "optimizer_args", {{"foreach", false}}, "measure");
  if (job.precision == Precision::amp_fp16) job.precision = Precision::amp;
  job.checkpointing.reentrant = true;
  if (job.family == "unet2d-condition") job.attention = AttentionKernel::eager;  // the CPU holds its scores
  if (job.family == "stdiff") apply_setting(job, "config", {{"xformers_on", false}}, "measure");
  job.steps = steps;
  job.longest = job.eval_batch = 0;
  job.sampling = {};
  return job;
}

int64_t largest_that_fits(const Job& job, int64_t failed, int64_t limit) {
  int64_t fits = 0;
  for (int64_t fails = failed; fails - fits > 1;) {
    Job twin = simulated_twin(job, 2);  // states of the optimizer are there in the second step
    twin.batch = fits + (fails - fits) / 2;
    twin.accumulation = 2;  // and gradients of one micro-batch while the next one runs
    (ideal_timeline(execute(twin, {}, {.all_ranks = false})->trace()).peak().bytes <= limit ? fits : fails) = twin.batch;
  }
  return fits;
}

bool TwinResult::equal() const {
  for (const TwinRow& r : rows)
    if (r.measured != r.simulated) return false;
  return !rows.empty();
}

TwinResult compare_twins(const Trace& measured, const Trace& simulated) {
  TwinResult out;
  const Timeline a = ideal_timeline(measured), b = ideal_timeline(simulated);
  const size_t steps = std::min(a.steps.size(), b.steps.size());
  if (steps == 0) return out;
  for (size_t s = 0; s < steps; ++s) {
    out.rows.push_back({fmt::format("step {}", s + 1), a.steps[s].bytes, b.steps[s].bytes});
    for (size_t p = 0; p < kPhases; ++p)
      if (a.steps[s].by_phase[p] != 0 || b.steps[s].by_phase[p] != 0)
        out.rows.push_back(
            {fmt::format("step {} {}", s + 1, phase_name(static_cast<Phase>(p))), a.steps[s].by_phase[p], b.steps[s].by_phase[p]});
  }
  const StepPeak &x = a.peak(), &y = b.peak();
  for (size_t c = 0; c < kCategories; ++c)
    if (x.by_category[c] != 0 || y.by_category[c] != 0)
      out.rows.push_back({fmt::format("peak: {}", category_name(static_cast<Category>(c))), x.by_category[c], y.by_category[c]});
  return out;
}

std::string twin_text(const TwinResult& result) {
  std::string out = fmt::format("{:<34}{:>18}{:>18}{:>14}\n", "Measured against simulated", "measured", "simulated", "difference");
  for (const TwinRow& r : result.rows)
    out += fmt::format("  {:<32}{:>18}{:>18}{:>14}\n", r.what, with_commas(r.measured), with_commas(r.simulated),
                       r.measured == r.simulated ? "equal" : with_commas(r.simulated - r.measured));
  return out;
}

nlohmann::ordered_json twin_json(const TwinResult& result) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const TwinRow& r : result.rows) rows.push_back({{"what", r.what}, {"measured", r.measured}, {"simulated", r.simulated}});
  return {{"equal", result.equal()}, {"rows", rows}};
}

namespace {

struct Allocation {
  int64_t bytes = 0, alive = 0;
  std::string label;
};

// Those of the steps, each with what is alive after it.
std::vector<Allocation> allocations(const Trace& t) {
  std::vector<Allocation> out;
  int64_t alive = 0;
  bool stepping = false;
  Phase phase = Phase::setup;
  for (const Event& e : t.events) {
    if (e.kind == Event::Kind::step) stepping = true;
    if (e.kind == Event::Kind::phase) phase = static_cast<Phase>(e.value);
    if (e.kind == Event::Kind::free) alive -= t.storages[e.storage].bytes;
    if (e.kind != Event::Kind::alloc) continue;
    const StorageRecord& s = t.storages[e.storage];
    alive += s.bytes;
    if (stepping) out.push_back({s.bytes, alive, fmt::format("{} {} {}", phase_name(phase), t.scope_path(s.scope), t.names[s.op])});
  }
  return out;
}

std::string line(const std::vector<Allocation>& all, size_t i) {
  if (i >= all.size()) return "(ends)";
  return fmt::format("{:>14} {:>16} {}", with_commas(all[i].bytes), with_commas(all[i].alive), all[i].label);
}

}  // namespace

namespace {

using Allocations = std::vector<Allocation>;

bool go_on_alike(const Allocations& a, size_t i, const Allocations& b, size_t j) {
  constexpr size_t kLong = 5;
  for (size_t k = 0; k < kLong; ++k) {
    if (i + k >= a.size() || j + k >= b.size()) return i + k >= a.size() && j + k >= b.size();
    if (a[i + k].bytes != b[j + k].bytes) return false;
  }
  return true;
}

// The nearest places at which both go on alike; the ends where there are none.
std::pair<size_t, size_t> where_they_meet(const Allocations& a, size_t i, const Allocations& b, size_t j) {
  constexpr size_t kFar = 60;
  for (size_t skipped = 1; skipped <= kFar; ++skipped)
    for (size_t of_a = 0; of_a <= skipped; ++of_a)
      if (go_on_alike(a, i + of_a, b, j + skipped - of_a)) return {i + of_a, j + skipped - of_a};
  return {a.size(), b.size()};
}

// What only one side allocates, place by place.
std::string all_differences(const Allocations& a, size_t i, const Allocations& b, size_t j) {
  constexpr int kMost = 40;
  std::string out = "What only one of them allocates:\n";
  for (int shown = 0; i < a.size() || j < b.size();) {
    if (i < a.size() && j < b.size() && a[i].bytes == b[j].bytes) {
      ++i, ++j;
      continue;
    }
    if (++shown > kMost) return out + "  ...\n";
    const auto [next_i, next_j] = where_they_meet(a, i, b, j);
    for (; i < next_i; ++i) out += fmt::format("  measured  {:>8} {}\n", i, line(a, i));
    for (; j < next_j; ++j) out += fmt::format("  simulated {:>8} {}\n", j, line(b, j));
  }
  return out;
}

}  // namespace

std::string first_difference(const Trace& measured, const Trace& simulated) {
  const std::vector<Allocation> a = allocations(measured), b = allocations(simulated);
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i].bytes == b[i].bytes && a[i].alive == b[i].alive) ++i;
  if (i == a.size() && i == b.size()) return "";
  std::string out =
      fmt::format("Allocation {} differs (of {} measured, {} simulated): bytes, alive after it, where\n", i, a.size(), b.size());
  constexpr size_t kBefore = 6, kAfter = 10;
  for (size_t k = i - std::min(i, kBefore); k < i + kAfter; ++k)
    out += fmt::format("  {}{:<90} | {}\n", k == i ? '>' : ' ', line(a, k), line(b, k));
  return out + all_differences(a, i, b, i);
}

}  // namespace plimsoll::measure
