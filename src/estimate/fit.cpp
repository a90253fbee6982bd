#include "estimate/fit.h"

#include "estimate/compiled.h"
#include "estimate/stand_in.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimate/xla_memory.h"
#include "hardware/lookup.h"
#include "job/distribution.h"

namespace plimsoll {

namespace {

FirstFailure failure_of(const Job& job, const Trace& trace, const CudaOom& oom) {
  FirstFailure f;
  f.numbers = oom.numbers;
  size_t steps = 0;
  for (size_t i = 0; i < static_cast<size_t>(oom.at_event); ++i) {
    const Event& e = trace.events[i];
    if (e.kind == Event::Kind::step) ++steps;
    if (e.kind == Event::Kind::phase) f.phase = static_cast<Phase>(e.value);
  }
  f.step = steps == 0 ? "before the first step" : step_names(job)[steps - 1];
  const StorageRecord& s = trace.storages[oom.storage];
  f.module = trace.scope_path(s.scope);
  f.op = trace.names[s.op];
  return f;
}

// Frameworks whose allocator is not PyTorch's CUDA one.
bool has_other_allocator(const DeviceSpec& d) { return d.vendor == "Google" || d.arch == "Gaudi"; }

// Whether the evaluation holds more than any step of training.
bool evaluation_decides(const Run& run) {
  const std::vector<std::string> names = step_names(run.job);
  int64_t training = 0, evaluation = 0;
  for (size_t i = 0; i < std::min(names.size(), run.cuda().steps.size()); ++i) {
    int64_t& most = names[i] == "evaluation" ? evaluation : training;
    most = std::max(most, run.cuda().steps[i].reserved);
  }
  return evaluation > training;
}

// The allocator on a device of that size: it gives back what it cached before it gives up.
void judge_by_replay(Fit& f, const Job& job, const Trace& trace, Bytes capacity, Bytes outside) {
  if (outside >= capacity) {
    f.verdict = Verdict::does_not_fit;
    f.reason = "the context and other processes alone fill the device";
    return;
  }
  const CudaTimeline t = cuda_timeline(trace, parse_alloc_conf(job.alloc_conf), {capacity.count, outside.count, {}});
  f.retries = t.retries;
  if (t.oom) {
    f.verdict = Verdict::does_not_fit;
    f.failure = failure_of(job, trace, *t.oom);
    f.reason = "an allocation fails even after the cache was given back";
    return;
  }
  f.verdict = Verdict::tight;
  f.reason = fmt::format("only because the allocator gives its cache back {} time{}", t.retries, t.retries == 1 ? "" : "s");
}

}  // namespace

TargetDevice target_device(const DeviceSpec& spec) { return {spec, spec.name, usable_memory(spec), {}}; }

TargetDevice target_device(const DetectedDevice& d) {
  TargetDevice t;
  if (!d.catalogue_id.empty()) t.spec = find_device(d.catalogue_id);
  t.spec.vendor = d.vendor;
  t.spec.memory = d.memory;
  if (!d.target.empty()) t.spec.compute_capability = d.target;
  t.name = fmt::format("{}{}", d.name, d.index >= 0 ? fmt::format(" ({})", d.index) : "");
  if (d.usable) t.capacity = Capacity{*d.usable, *d.usable, *d.usable, d.basis};
  if (d.used) t.others = *d.used;
  return t;
}

Target target_of(const Job& job, const std::optional<DeviceSpec>& device) {
  return {device ? device->compute_capability : "", job.program.framework == Framework::jax ? device_kind(job, device) : DeviceKind::gpu};
}

Fit Fitting::need_on(const TargetDevice& device) {
  const std::shared_ptr<const Run> run = this->run(device);
  if (run->xla) return fit_xla(job_, *run->xla, device);
  const Trace& trace = run->simulation.trace;
  Fit f;
  f.device = device;
  f.memory = device_memory(run->cuda(), {device.spec, job_.platform.torch, uses_convolutions(trace), world_size(job_)});
  f.memory = with_stand_in_range(job_, trace, f.memory);
  f.memory = compiled_memory(job_, f.memory, [&](const Job& fused) { return Fitting(runs_, fused, detail_).need_on(device).memory; });
  if (!device.capacity) {
    f.reason = "how much memory the device has is not established";
    return f;
  }
  const Capacity& c = *device.capacity;
  f.margin = c.bytes - device.others - f.memory.device.bytes;
  if (has_other_allocator(device.spec)) {
    f.reason = "another framework's allocator, which is not simulated";
  } else if (f.memory.device.high + device.others <= c.low) {
    f.verdict = Verdict::fits;
    f.reason = "even the upper end of the 90 % interval fits";
  } else if (f.margin.count >= 0 && !run->cuda().oom) {
    f.verdict = Verdict::tight;
    f.reason = "it should fit; the upper end of the 90 % interval does not";
  } else {
    f.verdict = Verdict::does_not_fit;
    f.reason = "the need is larger than the device";
  }
  return f;
}

Fit Fitting::replay_on(const TargetDevice& device) {
  Fit f = need_on(device);
  if (job_.program.framework == Framework::jax) return f;
  const std::shared_ptr<const Run> run = this->run(device);
  if (f.verdict == Verdict::does_not_fit) {
    Bytes outside = device.others;
    for (const Overhead& o : f.memory.overheads) outside += o.range.bytes;
    judge_by_replay(f, run->job, run->simulation.trace, device.capacity->bytes, outside);
  }
  if (f.verdict != Verdict::fits && evaluation_decides(*run)) f.reason += "; evaluation decides it, --eval-batch 0 leaves it out";
  if (const std::string parts = missing_parts(job_); !parts.empty() && f.verdict != Verdict::does_not_fit) {
    f.verdict = Verdict::unknown;
    f.reason = fmt::format("{} {} not in it", parts, parts.find(" and ") == std::string::npos ? "is" : "are");
  }
  if (device.capacity && device.spec.memory == MemoryKind::unified) f.reason += "; the pool is the host's too, see --unified";
  return f;
}

}  // namespace plimsoll
