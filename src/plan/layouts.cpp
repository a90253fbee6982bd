#include "plan/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "model/megatron.h"
#include "plan/megatron_time.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr int64_t kTokensOfStep = int64_t{4} << 20;
constexpr int64_t kTokensOfRank = 4096;  // context parallelism leaves a rank at least so many

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) out.push_back(d);
  return out;
}

// Of every stage: equal, or with fewer on the first and the last one, which have the embedding and the head (Megatron's
// decoder-first- and -last-pipeline-num-layers). Nothing when neither can be.
std::optional<std::vector<int64_t>> stage_layers(int64_t layers, int64_t stages) {
  if (layers % stages == 0) return std::vector<int64_t>{};
  std::optional<std::vector<int64_t>> best;
  for (int64_t end = layers / stages; end >= 1 && stages > 2 && !best; --end)
    if ((layers - 2 * end) % (stages - 2) == 0) {
      best = std::vector<int64_t>(static_cast<size_t>(stages), (layers - 2 * end) / (stages - 2));
      best->front() = best->back() = end;
    }
  return best;
}

std::vector<int64_t> stage_counts(int64_t layers) {
  std::vector<int64_t> out = divisors(layers);
  for (int64_t n = 2; n < layers; n *= 2)
    if (layers % n != 0 && stage_layers(layers, n)) out.push_back(n);
  return out;
}

bool possible(const Job& job) {
  try {
    MegatronConfig(job.family, job.config, *job.parallel.megatron);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Job> candidates(const LayoutRequest& r, int64_t global) {
  const MegatronConfig whole(r.job.family, r.job.config, MegatronSettings{});
  std::vector<Job> out;
  MegatronSettings m = r.job.parallel.megatron.value_or(MegatronSettings{});
  m.world = r.world;
  m.stage.reset();
  for (m.tensor = 1; m.tensor <= kDevicesOfNode; m.tensor *= 2)
    for (const int64_t stages : stage_counts(whole.layers))
      for (m.context = 1; r.job.seq / m.context >= kTokensOfRank || m.context == 1; m.context *= 2) {
        m.pipeline = stages;
        m.layers = *stage_layers(whole.layers, stages);
        const int64_t model = m.tensor * stages * m.context;
        if (model > r.world) break;
        if (r.world % model != 0 || global % m.data() != 0) continue;
        for (m.expert = 1; m.expert <= std::max<int64_t>(1, whole.experts); m.expert *= 2) {
          m.expert_tensor = 1;
          if (r.world % (m.expert * stages) != 0) break;
          m.sequence = m.tensor > 1;
          for (const int64_t batch : {1, 2, 4, 8}) {
            if (global / m.data() % batch != 0) break;
            for (m.virtual_stages = 1; m.virtual_stages <= (stages > 1 && m.layers.empty() ? 2 : 1); ++m.virtual_stages)
              for (const bool recompute : {false, true}) {
                Job job = r.job;
                job.parallel.megatron = m;
                job.batch = batch;
                job.accumulation = global / m.data() / batch;
                job.checkpointing = {};
                job.checkpointing.on = recompute;
                job.warm_optimizer = true;  // its states are there from the start, so one step is the steady state
                job.steps = 1;
                if (m.virtual_stages > 1 && job.accumulation % stages != 0) continue;
                if (possible(job)) out.push_back(std::move(job));
              }
          }
        }
      }
  return out;
}

// What weights, gradients and states alone take on the stage with the fewest of them.
bool too_large(const Job& job, const TargetDevice& device, int64_t parameters) {
  const MegatronSettings& m = *job.parallel.megatron;
  const double rank = static_cast<double>(parameters) / static_cast<double>(m.tensor * m.pipeline * m.expert);
  return rank * (6 + 12.0 / static_cast<double>(m.shards())) > static_cast<double>(device.capacity->bytes.count);
}

// The first stage has the most micro-batches in flight, the last one the logits; those between have less than the first, or, where that
// has fewer layers, less than the second.
Layout execute(Job job, const TargetDevice& device) {
  Layout best;
  const int64_t stages = job.parallel.megatron->pipeline;
  std::set<int64_t> largest{0, stages - 1};
  if (!job.parallel.megatron->layers.empty()) largest.insert(1);
  for (const int64_t stage : largest) {
    job.parallel.megatron->stage = stage;
    Fitting fitting(job, true);
    const Fit fit = fitting.need(device);
    const StepTimeAnswer time = step_time(job, fitting.simulation(device), device.spec);
    const double slowest = best.time ? best.time->seconds : 0;
    if (time.time && time.time->seconds > slowest) best.time = time.time;
    if (fit.memory.device.bytes.count < best.memory.device.bytes.count) continue;
    best.memory = fit.memory;
    best.verdict = fit.verdict;
    best.margin = fit.margin;
    if (fit.verdict != Verdict::fits) break;
  }
  job.parallel.megatron->stage.reset();
  job.warm_optimizer = false;
  job.steps = Job{}.steps;
  best.job = std::move(job);
  return best;
}

// What needs no execution: a larger micro-batch than one that did not fit, and recomputation where all fits without.
class Known {
 public:
  bool settles(const Job& job) const {
    return failed_.contains(key(job, job.checkpointing.on)) || (job.checkpointing.on && fits_.contains({key(job, false), job.batch}));
  }
  void add(const Layout& l) {
    if (l.verdict == Verdict::fits)
      fits_.insert({key(l.job, l.job.checkpointing.on), l.job.batch});
    else
      failed_.insert(key(l.job, l.job.checkpointing.on));
  }

 private:
  using Key = std::array<int64_t, 6>;
  static Key key(const Job& job, bool recompute) {
    const MegatronSettings& m = *job.parallel.megatron;
    return {m.tensor, m.pipeline, m.context, m.expert, m.virtual_stages, recompute};
  }
  std::set<Key> failed_;
  std::set<std::pair<Key, int64_t>> fits_;
};

int64_t parameters_of(const Job& asked) {
  Job job = asked;
  job.steps = 1;
  job.accumulation = 1;
  job.batch = 1;
  job.seq = 1;
  job.parallel.megatron = MegatronSettings{};
  return simulate(job).parameters;
}

}  // namespace

LayoutPlan plan_layouts(const LayoutRequest& request) {
  if (!request.device.capacity) throw Error("[plan] how much memory the device has is not established", "name another with --gpu");
  LayoutPlan plan;
  plan.request = request;
  plan.global_batch = request.global_batch > 0 ? request.global_batch : std::max(request.world, kTokensOfStep / request.job.seq);
  const std::vector<Job> jobs = candidates(request, plan.global_batch);
  plan.possible = jobs.size();
  if (jobs.empty())
    throw Error(fmt::format("[plan] no layout of {} ranks has a global batch of {}", request.world, plan.global_batch),
                fmt::format("--total-batch {}, or another number of ranks", round_up(plan.global_batch, request.world)));
  const int64_t parameters = parameters_of(request.job);
  Known known;
  for (const Job& job : jobs) {
    if (too_large(job, request.device, parameters) || known.settles(job)) continue;
    Layout layout = execute(job, request.device);
    known.add(layout);
    ++plan.executed;
    if (request.progress) request.progress(plan.executed);
    const bool smaller = !plan.smallest || layout.memory.device.bytes < plan.smallest->memory.device.bytes;
    if (smaller) plan.smallest = layout;
    if (layout.verdict == Verdict::fits) plan.fitting.push_back(std::move(layout));
  }
  const auto seconds = [](const Layout& l) { return l.time ? l.time->seconds : 0; };
  std::stable_sort(plan.fitting.begin(), plan.fitting.end(), [&](const Layout& a, const Layout& b) { return seconds(a) < seconds(b); });
  return plan;
}

}  // namespace plimsoll
