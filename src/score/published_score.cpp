#include "score/published_score.h"

#include <algorithm>
#include <cmath>

#include "estimate/compiled.h"
#include "estimate/device_memory.h"
#include "estimate/stand_in.h"
#include "hardware/lookup.h"
#include "job/distribution.h"
#include "model/registry.h"
#include "program/run.h"

namespace plimsoll {

namespace {

std::optional<DeviceSpec> device_of(const std::string& name) {
  std::optional<DeviceSpec> device;
  if (!name.empty()) problem_in([&] { device = find_device(name); });  // a name may fit no device, or several
  return device;
}

DeviceMemory memory_of(const Job& job, const std::optional<DeviceSpec>& device, bool torch_stated) {
  const std::shared_ptr<const Run> run = execute(job, {}, {.all_ranks = false});  // published figures are those of rank 0
  const Trace& trace = run->simulation.trace;
  DeviceFacts facts{device, job.platform.torch, uses_convolutions(trace), world_size(job)};
  DeviceMemory memory = with_stand_in_range(job, trace, device_memory(run->cuda(), facts));
  if (torch_stated) return memory;
  facts.torch = {1, 12};  // with an old one all kernels would be in memory
  memory.device.high = std::max(memory.device.high, device_memory(run->cuda(), facts).device.high);
  return memory;
}

// What was measured of the row's job, as predicted.
ByteRange predicted_for(const PublishedRow& row) {
  Job job = row.job;
  const ModelEntry* entry = find_model(job.family);
  if (!entry) throw Error("model: " + job.family);
  job.inputs = entry->inputs;
  if (job.inputs == InputKind::vector) job.seq = job.config.size({"input_size"}, entry->default_seq);
  const std::optional<DeviceSpec> device = device_of(row.gpu);
  if (device) job.platform.target = device->compute_capability;
  const auto measure = [&](const Job& asked) { return memory_of(asked, device, row.torch_stated); };
  const DeviceMemory memory = compiled_memory(job, measure(job), measure);
  switch (row.kind) {
    case MeasuredKind::allocated: return memory.allocated;
    case MeasuredKind::reserved: return memory.reserved;
    case MeasuredKind::device: return row.without_context ? memory.reserved : memory.device;
    default: return memory.resting;
  }
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

PublishedScore score_published(const PublishedRow& row) {
  PublishedScore s{row.id, row.family, row.kind, row.confidence, row.bytes, {}, row.unsupported};
  if (!s.unsupported.empty()) return s;
  if (const std::optional<Problem> problem = problem_in([&] { s.predicted = predicted_for(row); })) s.unsupported = problem->what;
  return s;
}

PublishedSummary summarise(const std::string& name, const std::vector<PublishedScore>& scores) {
  PublishedSummary sum{name, static_cast<int>(scores.size())};
  std::vector<double> errors, sizes;
  double below = 0, above_high = 0, inside = 0;
  for (const PublishedScore& s : scores) {
    if (!s.unsupported.empty()) continue;
    errors.push_back(s.error());
    sizes.push_back(std::abs(s.error()));
    sum.within_5 += sizes.back() <= 0.05;
    sum.within_10 += sizes.back() <= 0.10;
    below += s.error() < 0;
    above_high += s.measured > s.predicted.high.count;
    inside += s.measured >= s.predicted.low.count && s.measured <= s.predicted.high.count;
  }
  sum.predicted = static_cast<int>(errors.size());
  const double rows = std::max(1, sum.rows), predicted = std::max(1, sum.predicted);
  sum.within_5 /= rows;
  sum.within_10 /= rows;
  sum.below = below / predicted;
  sum.above_high = above_high / predicted;
  sum.inside = inside / predicted;
  sum.median = median(sizes);
  sum.signed_median = median(errors);
  return sum;
}

}  // namespace plimsoll
