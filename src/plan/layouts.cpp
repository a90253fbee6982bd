#include "plan/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "job/distribution.h"
#include "plan/layout_search.h"
#include "util/parallel.h"

namespace plimsoll {

namespace {

constexpr int64_t kTokensOfStep = int64_t{4} << 20;
constexpr int64_t kMostDevices = 1 << 17;

// An Error where even the model alone cannot be run.
int64_t parameters_of(Job job) {
  job.parallel = {};
  job.program = {};
  job.steps = job.accumulation = job.batch = 1;
  if (job.inputs == InputKind::lm || job.inputs == InputKind::cls) job.seq = 1;
  job.checkpointing = {};
  return execute(job, {}, {.all_ranks = false})->simulation.parameters;
}

int64_t global_of(const LayoutRequest& r) {
  if (r.global_batch > 0) return r.global_batch;
  const auto& origin = r.job.origin;
  if (origin.contains("batch") || origin.contains("accumulation") || origin.contains("global_batch"))
    return checked_mul(checked_mul(r.job.batch, r.job.accumulation), replica_count(r.job));
  const bool text = r.job.inputs == InputKind::lm && r.job.seq > 0;
  return text ? std::max(r.world, kTokensOfStep / r.job.seq) : checked_mul(r.world, r.job.batch);
}

std::vector<SpreadGroup> groups_of(const LayoutRequest& request, LayoutPlan& plan) {
  std::vector<SpreadGroup> out;
  for (const LayoutKind& kind : layout_kinds()) {
    if (!request.kinds.empty() && !request.kinds.contains(kind.name)) continue;
    Spreads spreads = kind.spreads(request);
    if (spreads.all.empty() && !spreads.why_none.empty()) plan.left_out.emplace_back(kind.title, spreads.why_none);
    for (Spread& s : spreads.all) {
      if (!s.needs_more || out.empty() || out.back().kind != &kind) out.push_back({&kind, {}});
      out.back().spreads.push_back(std::move(s));
    }
  }
  return out;
}

double seconds_a_sample(const Layout& l) { return l.need.time ? l.need.time->seconds / static_cast<double>(l.global_batch) : 0; }

// What a search found, or why there is nothing to search.
struct Searched {
  LayoutPlan plan;
  std::optional<Error> nothing;
};

// The results do not depend on which thread is first.
std::vector<ExploredGroup> explore_all(const LayoutSearch& search, const std::vector<SpreadGroup>& groups, const OnProgress& tell) {
  std::vector<ExploredGroup> results(groups.size());
  ProgressCounter progress(tell, "candidates executed");
  const auto explore = [&](size_t i) {
    results[i] = search.explore(groups[i]);
    progress.advance(results[i].layouts.size());
  };
  parallel_for(groups.size(), explore, progress);
  return results;
}

void take(LayoutPlan& plan, Layout layout) {
  ++plan.executed;
  if (!plan.smallest || layout.need.device.bytes < plan.smallest->need.device.bytes) plan.smallest = layout;
  if (fits(layout, plan.request)) plan.fitting.push_back(std::move(layout));
}

// All ranks of what people see: of the fastest, of the fastest of each kind, and of the smallest. What then does not fit is none of them,
// and the next one takes its place.
void confirm(LayoutPlan& plan) {
  for (bool changed = true; changed;) {
    std::set<std::string> kinds;
    std::vector<size_t> open;
    for (size_t i = 0; i < plan.fitting.size(); ++i)
      if ((kinds.insert(plan.fitting[i].kind).second || i < kShownLayouts) && !plan.fitting[i].confirmed) open.push_back(i);
    parallel_for(open.size(), [&](size_t i) { plan.fitting[open[i]] = confirmed(std::move(plan.fitting[open[i]]), plan.request); });
    changed = std::erase_if(plan.fitting, [&](const Layout& l) { return !fits(l, plan.request); }) > 0;
  }
  plan.smallest = confirmed(std::move(*plan.smallest), plan.request);
}

Searched search(const LayoutRequest& request) {
  Searched out;
  LayoutPlan& plan = out.plan;
  plan.request = request;
  plan.global_batch = global_of(request);
  const std::vector<SpreadGroup> groups = groups_of(request, plan);
  const LayoutSearch search(request, plan.global_batch, parameters_of(request.job));
  for (ExploredGroup& e : explore_all(search, groups, request.progress)) {
    plan.possible += e.possible;
    for (Layout& l : e.layouts) take(plan, std::move(l));
  }
  if (groups.empty() && !plan.left_out.empty()) {
    out.nothing = Error(fmt::format("[plan] no layout of {} ranks is possible. {}: {}", request.world, plan.left_out.front().first,
                                    plan.left_out.front().second),
                        "another number of ranks, or other kinds: --layouts");
    return out;
  }
  if (plan.possible == 0) {
    out.nothing = Error(fmt::format("[plan] no layout of {} ranks has a global batch of {}", request.world, plan.global_batch),
                        fmt::format("--total-batch {}, or another number of ranks", round_up(plan.global_batch, request.world)));
    return out;
  }
  // All are too large by their weights alone: the smallest of them says by how much.
  if (plan.executed == 0) {
    const auto smallest = std::min_element(groups.begin(), groups.end(), [&](const SpreadGroup& a, const SpreadGroup& b) {
      return search.lower_bound_of(a) < search.lower_bound_of(b);
    });
    if (std::optional<Layout> layout = search.smallest(*smallest)) take(plan, std::move(*layout));
  }
  if (!plan.smallest) {
    out.nothing = Error(fmt::format("[plan] none of the {} layouts of {} ranks can be executed", plan.possible, request.world),
                        "ask about one alone: plimsoll estimate with --fsdp, --torchtitan or --megatron says why");
    return out;
  }
  std::stable_sort(plan.fitting.begin(), plan.fitting.end(),
                   [](const Layout& a, const Layout& b) { return seconds_a_sample(a) < seconds_a_sample(b); });
  confirm(plan);
  return out;
}

// Nothing where no layout of that many devices makes the batch, or none fits.
std::optional<Layout> fastest(const LayoutRequest& request) {
  Searched found = search(request);
  if (found.nothing || found.plan.fitting.empty()) return std::nullopt;
  return std::move(found.plan.fitting.front());
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

bool fits(const Layout& l, const LayoutRequest& r) {
  const auto limit = static_cast<int64_t>(static_cast<double>(r.device.capacity->low.count) * (1 - r.leave_free));
  return l.need.verdict == Verdict::fits && l.need.device.high.count <= limit;
}

Layout confirmed(Layout layout, const LayoutRequest& request) {
  if (layout.confirmed) return layout;
  layout.confirmed = true;
  Fit fit;
  if (const std::optional<Problem> problem = problem_in([&] { fit = Fitting(layout.job).need_on(request.device); })) {
    layout.need.verdict = Verdict::unknown;
    layout.need.unknown = problem->what;
    return layout;
  }
  layout.need = need_of(fit, layout.need.time);
  layout.margin = fit.margin;
  return layout;
}

LayoutPlan plan_layouts(const LayoutRequest& request) {
  check(request);
  Searched found = search(request);
  if (found.nothing) throw *found.nothing;
  if (found.plan.fitting.empty()) add_larger_goals(found.plan);
  return std::move(found.plan);
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
