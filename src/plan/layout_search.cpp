#include "plan/layout_search.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "plan/lower_bound.h"

namespace plimsoll {

namespace {

Job plain(Job job) {
  job.parallel = {};
  job.program = {};
  return job;
}

}  // namespace

LayoutSearch::LayoutSearch(const LayoutRequest& request, int64_t global, int64_t parameters)
    : request_(request), global_(global), parameters_(parameters), base_(plain(request.job)) {}

ExploredGroup LayoutSearch::explore(const SpreadGroup& group) const {
  ExploredGroup out;
  const std::vector<nlohmann::json> levels = levels_of(*group.kind);
  std::vector<int64_t> too_large(levels.size(), INT64_MAX);  // by level, the smallest micro-batch at which the first of them did not fit
  for (const Spread& spread : group.spreads) {
    std::vector<int64_t> fitting;
    for (size_t level = 0; level < levels.size(); ++level) {
      int64_t beyond = too_large[level];
      for (const Split& split : splits(spread)) {
        const Patch changes = recipe(spread, split, levels[level]);
        const Outcome<Job> job = try_patched(base_, changes, "plan");
        if (!job) continue;
        ++out.possible;
        const bool settled = split.batch >= beyond || std::count(fitting.begin(), fitting.end(), split.batch) > 0;
        if (settled || lower_bound(*job, parameters_) > request_.device.capacity->low) continue;
        std::optional<Layout> layout = executed(*group.kind, spread, changes, *job);
        if (!layout) {
          --out.possible;
          continue;
        }
        if (fits(*layout, request_))
          fitting.push_back(split.batch);
        else
          beyond = split.batch;
        out.layouts.push_back(std::move(*layout));
      }
      if (!spread.needs_more) too_large[level] = beyond;
    }
  }
  return out;
}

std::optional<Layout> LayoutSearch::smallest(const SpreadGroup& group) const {
  const Spread& spread = group.spreads.front();
  const std::vector<nlohmann::json> levels = levels_of(*group.kind);
  for (auto level = levels.rbegin(); level != levels.rend(); ++level)
    for (const Split& split : splits(spread)) {
      const Patch changes = recipe(spread, split, *level);
      const Outcome<Job> job = try_patched(base_, changes, "plan");
      if (!job) continue;
      if (std::optional<Layout> layout = executed(*group.kind, spread, changes, *job)) return layout;
    }
  return std::nullopt;
}

Bytes LayoutSearch::lower_bound_of(const SpreadGroup& group) const {
  const Outcome<Job> job = try_patched(base_, group.spreads.front().settings, "plan");
  return job ? lower_bound(*job, parameters_) : Bytes{INT64_MAX};
}

std::vector<nlohmann::json> LayoutSearch::levels_of(const LayoutKind& kind) const {
  if (request_.keep.contains("checkpointing")) return {nlohmann::json(to_json(request_.job.checkpointing))};
  return kind.checkpointing;
}

// Those that make the global batch, to a fiftieth.
std::vector<Split> LayoutSearch::splits(const Spread& s) const {
  std::vector<Split> out;
  if (request_.keep.contains("batch"))
    out = {{request_.job.batch, std::max<int64_t>(1, global_ / s.replicas / request_.job.batch)}};
  else if (global_ >= s.replicas)
    out = splits_of(global_, s.replicas);
  const int64_t least = s.pipeline;  // of its micro-batches
  std::erase_if(out, [&](const Split& x) {
    const int64_t miss = std::abs(global_batch(x, s.replicas) - global_);
    return miss > global_ / 50 || x.accumulation < least || x.accumulation % s.micro_batches != 0 || (s.accumulates && x.accumulation == 1);
  });
  return out;
}

Patch LayoutSearch::recipe(const Spread& s, const Split& split, const nlohmann::json& level) const {
  const Patch r = merged(s.settings, {{"batch", split.batch}, {"accumulation", split.accumulation}, {"checkpointing", level}});
  if (s.pipeline == 1) return r;
  Patch pipelined = merged(r, {{"batch", split.batch * split.accumulation}, {"accumulation", 1}});
  return pipelined.set("torchtitan", "micro_batches", split.accumulation);
}

// Nothing where the model cannot be cut like that.
std::optional<Layout> LayoutSearch::executed(const LayoutKind& kind, const Spread& spread, const Patch& changes, const Job& job) const {
  Layout out;
  out.kind = kind.title;
  out.changes = changes;
  out.replicas = spread.replicas;
  out.global_batch = checked_mul(checked_mul(job.batch, job.accumulation), out.replicas);
  out.job = job;
  for (const Job& rank : kind.ranks ? kind.ranks(job) : std::vector<Job>{job}) {
    Fitting fitting(rank, {.work = true, .all_ranks = false});
    Fit fit;
    if (problem_in([&] { fit = fitting.need_on(request_.device); })) return std::nullopt;
    const std::optional<StepTime> time =
        time_on(rank, fitting.run(request_.device)->simulation, request_.device, request_.calibration, request_.cluster);
    std::optional<StepTime> slowest = out.need.time;
    if (time && (!slowest || time->seconds > slowest->seconds)) slowest = time;
    if (fit.memory.device.bytes >= out.need.device.bytes) {
      out.need = need_of(fit);
      out.margin = fit.margin;
    }
    out.need.time = slowest;
    if (!fits(out, request_)) break;
  }
  return out;
}

}  // namespace plimsoll
