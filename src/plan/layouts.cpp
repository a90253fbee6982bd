#include "plan/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "job/distribution.h"
#include "plan/batches.h"
#include "plan/layout_kinds.h"
#include "plan/least_need.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kTokensOfStep = int64_t{4} << 20;
constexpr int64_t kMostDevices = 1 << 17;

// Spreads of one kind, of which all but the first need more than that: where it does not fit, they are not executed.
struct Task {
  const LayoutKind* kind;
  std::vector<Spread> spreads;
};

struct Explored {
  std::vector<Layout> layouts;  // that were executed
  size_t possible = 0;
};

Job plain(Job job) {
  job.parallel = {};
  job.program = {};
  return job;
}

bool fits(const Layout& l, const LayoutRequest& r) {
  const auto limit = static_cast<int64_t>(static_cast<double>(r.device.capacity->low.count) * (1 - r.leave_free));
  return l.need.verdict == Verdict::fits && l.need.device.high.count <= limit;
}

// On its largest ranks: the most memory and the most time of all.
Layout execute(const LayoutKind& kind, const Spread& spread, const Recipe& changes, Job job, const LayoutRequest& r) {
  Layout out;
  out.kind = kind.title;
  out.changes = changes;
  out.replicas = spread.replicas;
  out.global_batch = checked_mul(checked_mul(job.batch, job.accumulation), out.replicas);
  std::vector<Job> ranks = kind.ranks ? kind.ranks(job) : std::vector<Job>{job};
  for (Job& rank : ranks) {
    Fitting fitting(rank, {.work = true, .all_ranks = false});
    const Fit fit = fitting.need(r.device);
    const std::optional<StepTime> time = time_on(rank, fitting.run(r.device)->simulation, r.device, r.calibration, r.cluster);
    std::optional<StepTime> slowest = out.need.time;
    if (time && (!slowest || time->seconds > slowest->seconds)) slowest = time;
    if (fit.memory.device.bytes >= out.need.device.bytes) {
      out.need = {fit.memory.device, fit.memory.allocated.bytes, fit.verdict, fit.verdict == Verdict::unknown ? fit.reason : "", {}};
      out.margin = fit.margin;
    }
    out.need.time = slowest;
    if (!fits(out, r)) break;
  }
  out.job = std::move(job);
  return out;
}

class Exploration {
 public:
  Exploration(const LayoutRequest& request, int64_t global, int64_t parameters)
      : request_(request), global_(global), parameters_(parameters), base_(plain(request.job)) {}

  // Memory grows with the micro-batch and falls with recomputation: what is larger than something that did not fit is not executed, nor
  // what recomputes although it fits without.
  Explored explore(const Task& task) const {
    Explored out;
    std::map<std::string, int64_t> too_large;  // by level, the smallest micro-batch at which the first of them did not fit
    for (const Spread& spread : task.spreads) {
      std::vector<int64_t> fitting;
      for (const nlohmann::json& level : levels_of(*task.kind)) {
        const auto known = too_large.find(level.dump());
        int64_t beyond = known == too_large.end() ? INT64_MAX : known->second;
        for (const Split& split : splits(spread)) {
          const Recipe changes = recipe(spread, split, level);
          const std::optional<Job> job = job_of(changes);
          if (!job) continue;
          ++out.possible;
          const bool settled = split.batch >= beyond || std::count(fitting.begin(), fitting.end(), split.batch) > 0;
          if (settled || least_need(*job, parameters_) > request_.device.capacity->low) continue;
          std::optional<Layout> layout = executed(*task.kind, spread, changes, *job);
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
        if (!spread.needs_more) too_large[level.dump()] = beyond;
      }
    }
    return out;
  }

  // What needs the least of all its levels and micro-batches, though its weights alone are too large; nothing where none can be.
  std::optional<Layout> smallest(const Task& task) const {
    const Spread& spread = task.spreads.front();
    const std::vector<nlohmann::json> levels = levels_of(*task.kind);
    for (auto level = levels.rbegin(); level != levels.rend(); ++level)
      for (const Split& split : splits(spread)) {
        const Recipe changes = recipe(spread, split, *level);
        const std::optional<Job> job = job_of(changes);
        if (!job) continue;
        if (std::optional<Layout> layout = executed(*task.kind, spread, changes, *job)) return layout;
      }
    return std::nullopt;
  }

  Bytes least_of(const Task& task) const {
    const std::optional<Job> job = job_of(task.spreads.front().settings);
    return job ? least_need(*job, parameters_) : Bytes{INT64_MAX};
  }

 private:
  std::vector<nlohmann::json> levels_of(const LayoutKind& kind) const {
    if (request_.keep.contains("checkpointing")) return {nlohmann::json(to_json(request_.job.checkpointing))};
    return kind.checkpointing;
  }

  // Those that make the global batch, to a fiftieth.
  std::vector<Split> splits(const Spread& s) const {
    std::vector<Split> out;
    if (request_.keep.contains("batch"))
      out = {{request_.job.batch, std::max<int64_t>(1, global_ / s.replicas / request_.job.batch)}};
    else if (global_ >= s.replicas)
      out = splits_of(global_, s.replicas);
    const int64_t least = s.pipeline;  // of its micro-batches
    std::erase_if(out, [&](const Split& x) {
      const int64_t miss = std::abs(global_batch(x, s.replicas) - global_);
      return miss > global_ / 50 || x.accumulation < least || x.accumulation % s.micro_batches != 0 ||
             (s.accumulates && x.accumulation == 1);
    });
    return out;
  }

  Recipe recipe(const Spread& s, const Split& split, const nlohmann::json& level) const {
    Recipe r = merged(s.settings, {{"batch", split.batch}, {"accumulation", split.accumulation}, {"checkpointing", level}});
    if (s.pipeline == 1) return r;
    r["batch"] = split.batch * split.accumulation;
    r["accumulation"] = 1;
    r["torchtitan"]["micro_batches"] = split.accumulation;
    return r;
  }

  std::optional<Job> job_of(const Recipe& changes) const {
    try {
      return with(base_, changes);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // Nothing where the model cannot be cut like that.
  std::optional<Layout> executed(const LayoutKind& kind, const Spread& spread, const Recipe& changes, const Job& job) const {
    try {
      return execute(kind, spread, changes, job, request_);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  const LayoutRequest& request_;
  int64_t global_, parameters_;
  Job base_;
};

int64_t parameters_of(const Job& asked) {
  Job job = plain(asked);
  job.steps = job.accumulation = job.batch = 1;
  if (job.inputs == InputKind::lm || job.inputs == InputKind::cls) job.seq = 1;
  job.checkpointing = {};
  return plimsoll::execute(job, {}, {.all_ranks = false})->simulation.parameters;
}

int64_t global_of(const LayoutRequest& r) {
  if (r.global_batch > 0) return r.global_batch;
  const auto& origin = r.job.origin;
  if (origin.contains("batch") || origin.contains("accumulation") || origin.contains("global_batch"))
    return checked_mul(checked_mul(r.job.batch, r.job.accumulation), replica_count(r.job));
  const bool text = r.job.inputs == InputKind::lm && r.job.seq > 0;
  return text ? std::max(r.world, kTokensOfStep / r.job.seq) : checked_mul(r.world, r.job.batch);
}

std::vector<Task> tasks_of(const LayoutRequest& request, LayoutPlan& plan) {
  std::vector<Task> out;
  for (const LayoutKind& kind : layout_kinds()) {
    if (!request.kinds.empty() && !request.kinds.contains(kind.name)) continue;
    try {
      for (Spread& s : kind.spreads(request)) {
        if (!s.needs_more || out.empty() || out.back().kind != &kind) out.push_back({&kind, {}});
        out.back().spreads.push_back(std::move(s));
      }
    } catch (const Error& e) {
      plan.left_out.emplace_back(kind.title, e.what());
    }
  }
  return out;
}

// In as many threads as there are cores; the results do not depend on which is first.
std::vector<Explored> explore_all(const Exploration& exploration, const std::vector<Task>& tasks, const LayoutRequest& request) {
  std::vector<Explored> results(tasks.size());
  std::atomic<size_t> next{0};
  std::atomic<bool> cancelled{false};
  size_t executed = 0;
  std::mutex progress;
  const auto work = [&] {
    for (size_t i = next++; i < tasks.size() && !cancelled; i = next++) {
      results[i] = exploration.explore(tasks[i]);
      const std::lock_guard lock(progress);
      executed += results[i].layouts.size();
      if (request.progress && !cancelled && !request.progress(executed, 0, "candidates executed")) cancelled = true;
    }
  };
  std::vector<std::jthread> threads;
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (size_t i = 1; i < std::min(cores, tasks.size()); ++i) threads.emplace_back(work);
  work();
  threads.clear();
  if (cancelled) throw Cancelled{};
  return results;
}

double seconds_a_sample(const Layout& l) { return l.need.time ? l.need.time->seconds / static_cast<double>(l.global_batch) : 0; }

void take(LayoutPlan& plan, Layout layout) {
  ++plan.executed;
  if (!plan.smallest || layout.need.device.bytes < plan.smallest->need.device.bytes) plan.smallest = layout;
  if (fits(layout, plan.request)) plan.fitting.push_back(std::move(layout));
}

LayoutPlan searched(const LayoutRequest& request) {
  LayoutPlan plan;
  plan.request = request;
  plan.global_batch = global_of(request);
  const std::vector<Task> tasks = tasks_of(request, plan);
  const Exploration exploration(request, plan.global_batch, parameters_of(request.job));
  for (Explored& e : explore_all(exploration, tasks, request)) {
    plan.possible += e.possible;
    for (Layout& l : e.layouts) take(plan, std::move(l));
  }
  if (tasks.empty() && !plan.left_out.empty())
    throw Error(fmt::format("[plan] no layout of {} ranks is possible. {}: {}", request.world, plan.left_out.front().first,
                            plan.left_out.front().second),
                "another number of ranks, or other kinds: --layouts");
  if (plan.possible == 0)
    throw Error(fmt::format("[plan] no layout of {} ranks has a global batch of {}", request.world, plan.global_batch),
                fmt::format("--total-batch {}, or another number of ranks", round_up(plan.global_batch, request.world)));
  // All are too large by their weights alone: the smallest of them says by how much.
  if (plan.executed == 0) {
    const auto smallest = std::min_element(tasks.begin(), tasks.end(),
                                           [&](const Task& a, const Task& b) { return exploration.least_of(a) < exploration.least_of(b); });
    if (std::optional<Layout> layout = exploration.smallest(*smallest)) take(plan, std::move(*layout));
  }
  if (!plan.smallest)
    throw Error(fmt::format("[plan] none of the {} layouts of {} ranks can be executed", plan.possible, request.world),
                "ask about one alone: plimsoll estimate with --fsdp, --torchtitan or --megatron says why");
  std::stable_sort(plan.fitting.begin(), plan.fitting.end(),
                   [](const Layout& a, const Layout& b) { return seconds_a_sample(a) < seconds_a_sample(b); });
  return plan;
}

// Nothing where no layout of that many devices makes the batch.
std::optional<Layout> fastest(const LayoutRequest& request) {
  try {
    LayoutPlan plan = searched(request);
    if (!plan.fitting.empty()) return std::move(plan.fitting.front());
  } catch (const Error&) {
  }
  return std::nullopt;
}

// Twice as many devices, again and again; and the smallest device of the same maker.
void add_larger_goals(LayoutPlan& plan) {
  LayoutRequest more = plan.request;
  more.global_batch = plan.global_batch;
  for (more.world *= 2; more.world <= std::min(kMostDevices, 64 * plan.request.world); more.world *= 2) {
    std::optional<Layout> larger = fastest(more);
    if (!larger) continue;
    plan.would_fit.push_back({fmt::format("{} devices", more.world), fmt::format("--world {}", more.world), std::move(*larger)});
    break;
  }
  std::vector<TargetDevice> devices;
  for (const DeviceSpec& d : catalogue())
    if (d.vendor == plan.request.device.spec.vendor && d.memory == plan.request.device.spec.memory)
      if (const TargetDevice t = target_device(d); t.capacity && t.capacity->low > plan.request.device.capacity->low) devices.push_back(t);
  std::stable_sort(devices.begin(), devices.end(), [](const auto& a, const auto& b) { return a.capacity->low < b.capacity->low; });
  LayoutRequest other = plan.request;
  other.global_batch = plan.global_batch;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (i > 0 && devices[i].capacity->low == devices[i - 1].capacity->low) continue;
    if (plan.smallest && devices[i].capacity->low < plan.smallest->need.device.low) continue;
    other.device = devices[i];
    std::optional<Layout> larger = fastest(other);
    if (!larger) continue;
    plan.would_fit.push_back({"a larger device: " + other.device.name, "--gpu " + other.device.spec.id, std::move(*larger)});
    return;
  }
}

void check(const LayoutRequest& request) {
  if (!request.device.capacity) throw Error("[plan] how much memory the device has is not established", "name another with --gpu");
  if (request.job.program.framework != Framework::pytorch)
    throw Error("[plan] layouts over many devices are for framework pytorch", "leave --world out; replicas says how many devices pmap has");
  check_layout_kinds(request.kinds);
}

}  // namespace

LayoutPlan plan_layouts(const LayoutRequest& request) {
  check(request);
  LayoutPlan plan = searched(request);
  if (plan.fitting.empty()) add_larger_goals(plan);
  return plan;
}

LayoutPlan plan_fewest_devices(LayoutRequest request) {
  check(request);
  const int64_t most = request.world;
  request.global_batch = global_of(request);
  request.world = 1;
  while (request.world < most && !fastest(request)) request.world = std::min(most, request.world * 2);
  return plan_layouts(request);
}

}  // namespace plimsoll
