#include "plan/short_runs.h"

#include <algorithm>

#include "allocator/timeline.h"
#include "job/distribution.h"

namespace plimsoll {

namespace {

constexpr size_t kEventsOfASecond = 1'000'000;

Job with_tokens(Job job, int64_t tokens) {
  job.seq = tokens;
  return job;
}

// One micro-step: what grows with the sequence is seen in any. None where it cannot be run.
std::optional<double> events_of(const Job& job, int64_t tokens) {
  Job one = with_tokens(job, tokens);
  one.steps = one.accumulation = 1;
  one.eval_batch = 0;
  const Attempt tried = attempt(one);
  return tried.problem ? std::nullopt : std::optional(static_cast<double>(tried.run->simulation.trace.events.size()));
}

Bytes scaled(Bytes b, double factor) { return Bytes{static_cast<int64_t>(static_cast<double>(b.count) * factor)}; }

}  // namespace

Verdict verdict_of(const ByteRange& need, const TargetDevice& device) {
  if (!device.capacity) return Verdict::unknown;
  if (need.high + device.others <= device.capacity->low) return Verdict::fits;
  return need.bytes + device.others <= device.capacity->bytes ? Verdict::tight : Verdict::does_not_fit;
}

bool loops_over_tokens(const Job& job) {
  const bool tokens = job.inputs == InputKind::lm && job.program.framework == Framework::pytorch && job.longest == 0;
  if (!tokens || !ShortRuns::worth(job) || is_distributed(job)) return false;
  const std::optional<double> few = events_of(job, ShortRuns::kFew), more = few ? events_of(job, ShortRuns::kMore) : few;
  if (!few || !more) return false;
  const double each = (*more - *few) / static_cast<double>(ShortRuns::kMore - ShortRuns::kFew);
  const auto micro_steps = static_cast<double>(job.steps * simulated_micro_steps(job));
  return micro_steps * each * static_cast<double>(job.seq) > static_cast<double>(kEventsOfASecond);
}

ShortRuns::ShortRuns(const Job& job) : tokens_(job.seq) {
  for (int64_t tokens = kFew; tokens <= kMore; tokens += kStep) {
    const Job shorter = with_tokens(job, tokens);
    runs_.push_back({shorter, Fitting(shorter, {.work = true})});
  }
}

// Each phase of each step has a line of its own.
ShortRuns::Peak ShortRuns::peak(const TargetDevice& device) {
  const Timeline few = ideal_timeline(runs_.front().fitting.run(device)->simulation.trace), more = ideal_timeline(simulation(device).trace);
  const double steps = static_cast<double>(tokens_ - kMore) / static_cast<double>(kMore - kFew);
  Peak most;
  for (size_t step = 0; step < std::min(few.steps.size(), more.steps.size()); ++step)
    for (size_t phase = 0; phase < kPhases; ++phase) {
      const auto a = static_cast<double>(few.steps[step].by_phase[phase]), b = static_cast<double>(more.steps[step].by_phase[phase]);
      const auto bytes = static_cast<int64_t>(b + (b - a) * steps);
      if (bytes > most.bytes) most = {bytes, static_cast<Phase>(phase)};
    }
  return most;
}

// Through three points at equal distances (Newton's forward differences).
double ShortRuns::on_parabola(const std::vector<double>& y) const {
  const double x = static_cast<double>(tokens_ - kFew) / static_cast<double>(kStep);
  return std::max(0.0, y[0] + (y[1] - y[0]) * x + (y[2] - 2 * y[1] + y[0]) * x * (x - 1) / 2);
}

// Kernels hide what the host does only where they take longer, which short runs need not show.
StepTime ShortRuns::time(const std::vector<StepTime>& of_runs) const {
  StepTime t = of_runs.back();
  const double peaks = t.utilisation * t.seconds / t.model_flops, samples = t.samples_per_second * t.seconds;
  for (double StepTime::*part :
       {&StepTime::forward, &StepTime::recompute, &StepTime::backward, &StepTime::optimizer, &StepTime::transfers, &StepTime::communication,
        &StepTime::bubble, &StepTime::host, &StepTime::flops, &StepTime::model_flops, &StepTime::bytes})
    t.*part = on_parabola({of_runs[0].*part, of_runs[1].*part, of_runs[2].*part});
  const double kernels = t.forward + t.recompute + t.backward + t.optimizer;
  t.launch = std::max(0.0, t.host - kernels);
  t.seconds = kernels + t.transfers + t.communication + t.bubble + t.launch;
  t.kernels = static_cast<int64_t>(on_parabola(
      {static_cast<double>(of_runs[0].kernels), static_cast<double>(of_runs[1].kernels), static_cast<double>(of_runs[2].kernels)}));
  t.utilisation = peaks * t.model_flops / t.seconds;
  t.samples_per_second = samples / t.seconds;
  t.tokens_per_second = t.samples_per_second * static_cast<double>(tokens_);
  return t;
}

// What the allocator holds beside the tensors is taken to be the same for any length; libraries and context stay as they are.
Need ShortRuns::on(const TargetDevice& device, const Calibration& calibration, const Cluster& cluster) {
  Bytes idle;
  DeviceMemory memory;
  std::string unknown;
  std::vector<StepTime> times;
  for (ShortRun& r : runs_) {
    const Fit f = r.fitting.need_on(device);
    memory = f.memory;
    unknown = f.reason;
    idle = std::max(idle, memory.reserved.bytes - memory.allocated.bytes);
    if (const auto t = time_on(r.job, r.fitting.run(device)->simulation, device, calibration, cluster)) times.push_back(*t);
  }
  Need out;
  out.allocated = Bytes{peak(device).bytes};
  const ByteRange &held = memory.reserved, &all = memory.device;
  const Bytes reserved = out.allocated + idle;
  const double growth = static_cast<double>(reserved.count) / static_cast<double>(std::max<int64_t>(1, held.bytes.count));
  out.device.bytes = reserved + (all.bytes - held.bytes);
  out.device.low = scaled(held.low, growth) + (all.low - held.low);
  out.device.high = scaled(held.high, growth) + (all.high - held.high);
  out.verdict = verdict_of(out.device, device);
  if (out.verdict == Verdict::unknown) out.unknown = unknown;
  if (times.size() == runs_.size()) out.time = time(times);
  return out;
}

}  // namespace plimsoll
