#include "estimate/estimate.h"

#include "estimate/compiled.h"
#include "estimate/peak_tree.h"
#include "estimate/stand_in.h"

#include <algorithm>
#include <map>

#include "job/distribution.h"
#include "program/run.h"

namespace plimsoll {

namespace {

std::vector<LiveTensor> largest(const Trace& trace, const std::vector<LiveStorage>& alive, size_t count) {
  struct Key {
    int64_t bytes;
    Category category;
    std::string module, op, shape;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, int64_t> groups;
  for (const LiveStorage& l : alive) {
    const StorageRecord& s = trace.storages[l.id];
    std::string module;
    for (const std::string& part : folded_path(trace, s, l.category)) module += (module.empty() ? "" : ".") + part;
    const std::string& shape = trace.names[l.id < trace.shapes.size() ? trace.shapes[l.id] : 0];
    ++groups[{s.bytes, l.category, module, trace.names[s.op], shape}];
  }
  std::vector<LiveTensor> out;
  for (const auto& [key, n] : groups) out.push_back({{key.bytes}, key.category, key.module, key.op, n, key.shape});
  std::stable_sort(out.begin(), out.end(),
                   [](const LiveTensor& a, const LiveTensor& b) { return a.bytes.count * a.count > b.bytes.count * b.count; });
  if (out.size() > count) out.resize(count);
  return out;
}

// Memory over the events of one step, in `points` slices of equal length.
std::vector<CurvePoint> curve_of(const Trace& trace, size_t step, size_t points) {
  std::vector<std::pair<int64_t, Phase>> values;
  int64_t now = 0;
  Phase phase = Phase::setup;
  size_t steps_seen = 0;
  for (const Event& e : trace.events) {
    if (e.kind == Event::Kind::alloc) now += trace.storages[e.storage].bytes;
    if (e.kind == Event::Kind::free) now -= trace.storages[e.storage].bytes;
    if (e.kind == Event::Kind::phase) phase = static_cast<Phase>(e.value);
    if (e.kind == Event::Kind::step) ++steps_seen;
    if (steps_seen == step + 1 && e.kind != Event::Kind::step) values.emplace_back(now, phase);
  }
  std::vector<CurvePoint> out;
  const size_t n = std::min(points, values.size());
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = i * values.size() / n, end = std::max(begin + 1, (i + 1) * values.size() / n);
    const auto top = std::max_element(values.begin() + static_cast<long>(begin), values.begin() + static_cast<long>(end));
    out.push_back({{top->first}, values[begin].second});
  }
  return out;
}

std::array<Bytes, kCategories> category_peaks(const Trace& trace, size_t step) {
  std::array<Bytes, kCategories> now{}, most{};
  std::vector<Category> label(trace.storages.size());
  size_t steps_seen = 0;
  for (const Event& e : trace.events) {
    const auto of = [&](Category c) -> Bytes& { return now[static_cast<size_t>(c)]; };
    const auto grow = [&](Category c, int64_t bytes) {
      label[e.storage] = c;
      of(c) += Bytes{bytes};
    };
    if (e.kind == Event::Kind::step) {
      if (++steps_seen == step + 1) most = now;
      continue;
    }
    if (e.kind == Event::Kind::phase) continue;
    const StorageRecord& s = trace.storages[e.storage];
    if (e.kind != Event::Kind::alloc) of(label[e.storage]) -= Bytes{s.bytes};
    if (e.kind == Event::Kind::alloc) grow(s.born_as, s.bytes);
    if (e.kind == Event::Kind::relabel) grow(static_cast<Category>(e.value), s.bytes);
    if (steps_seen == step + 1)
      for (size_t i = 0; i < kCategories; ++i) most[i] = std::max(most[i], now[i]);
  }
  return most;
}

// When the peak is and what it is made of.
void explain(Estimate& e, const Trace& trace, const StepPeak& peak, size_t top_tensors) {
  e.peak = {peak.bytes};
  e.peak_phase = peak.phase;
  if (const Event& at = trace.events[static_cast<size_t>(peak.at_event)]; at.kind == Event::Kind::alloc) {
    e.peak_module = trace.scope_path(trace.storages[at.storage].scope);
    e.peak_op = trace.names[trace.storages[at.storage].op];
  }
  const std::vector<LiveStorage> alive = alive_at(trace, peak.at_event);
  e.by_module = module_tree(trace, alive, e.job.model);
  e.by_category = category_tree(trace, alive, e.job.model);
  if (top_tensors > 0) e.category_peaks = category_peaks(trace, e.worst);
  e.top = largest(trace, alive, top_tensors);
  e.curve = curve_of(trace, e.worst, 64);
  e.host_facts = host_facts(trace);
}

Estimate estimate_xla(const Job& job, const Run& run, size_t top_tensors, const std::optional<DeviceSpec>& device) {
  Estimate e;
  e.job = job;
  if (device) e.device = device->name, e.vendor = device->vendor;
  e.xla = xla_estimate(job, *run.xla, device);
  DeviceMemory& memory = e.memory.emplace();
  memory.allocated = memory.device = e.xla->needs;
  memory.reserved = e.xla->pool;
  memory.resting = ByteRange::exact({e.xla->program.arguments});
  memory.overheads = e.xla->overheads;
  for (const Overhead& o : memory.overheads) memory.device += o.range;
  e.parameters = e.xla->program.parameters;
  e.trainable = e.xla->program.trainable;
  e.sample = e.xla->program.sample;
  e.parameter_list = e.xla->program.parameter_list;
  const Timeline timeline = ideal_timeline(e.xla->program.trace);
  const StepPeak& peak = timeline.peak();
  e.steps.push_back({"every step", {peak.bytes}, peak.phase, peak.by_phase});
  explain(e, e.xla->program.trace, peak, top_tensors);
  return e;
}

Estimate estimate_pytorch(Runs& runs, const Run& run, size_t top_tensors, const std::optional<DeviceSpec>& device) {
  const Job& job = run.job;
  const Simulation& simulation = run.simulation;
  const Trace& trace = simulation.trace;
  Timeline timeline = ideal_timeline(trace);
  for (size_t i = 0; i < static_cast<size_t>(job.steps); ++i)  // of equal steps, the steady state tells more than the first
    if (timeline.steps[i].bytes == timeline.peak().bytes) timeline.worst = i;

  Estimate e;
  e.job = job;
  e.parameters = simulation.parameters;
  e.trainable = simulation.trainable;
  e.sample = simulation.sample;
  for (const RankRun& r : run.ranks) e.ranks.push_back({r.name, r.parameters, Bytes{r.cuda.allocated_peak}});
  e.parameter_list = simulation.parameter_list;
  e.worst = timeline.worst;
  e.pools = timeline.peak().by_stream;
  const std::vector<std::string> names = step_names(job);
  for (size_t i = 0; i < timeline.steps.size(); ++i) {
    const StepPeak& s = timeline.steps[i];
    e.steps.push_back({names[i], {s.bytes}, s.phase, s.by_phase});
  }
  if (!run.cuda().oom) e.memory = device_memory(run.cuda(), {device, job.platform.torch, uses_convolutions(trace), world_size(job)});
  if (e.memory) e.memory = with_stand_in_range(job, trace, *e.memory);
  if (e.memory)
    e.memory = compiled_memory(job, *e.memory, [&](const Job& fused) { return estimate(runs, fused, 0, device).memory.value(); });
  if (device) e.device = device->name, e.vendor = device->vendor;
  explain(e, trace, timeline.peak(), top_tensors);
  e.host_facts.activations = Bytes{simulation.activations_on_host};
  e.host_facts.weights = simulation.host.weights;
  e.host_facts.optimizer = simulation.host.optimizer;
  e.host_facts.host_ema = simulation.host.ema;
  e.host_facts.ema_transfer = simulation.host.ema_transfer;
  e.host_facts.managed = simulation.host.managed;
  return e;
}

}  // namespace

Estimate estimate(Runs& runs, const Job& job, size_t top_tensors, const std::optional<DeviceSpec>& device) {
  const std::shared_ptr<const Run> run = runs.execute(job, target_of(job, device), {.shapes = top_tensors > 0});
  return run->xla ? estimate_xla(job, *run, top_tensors, device) : estimate_pytorch(runs, *run, top_tensors, device);
}

Estimate estimate(const Job& job, size_t top_tensors, const std::optional<DeviceSpec>& device) {
  Runs runs;
  return estimate(runs, job, top_tensors, device);
}

}  // namespace plimsoll
