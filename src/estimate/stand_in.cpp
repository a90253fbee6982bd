#include "estimate/stand_in.h"

#include <algorithm>

#include "model/decoder/megatron.h"
#include "model/weights_only.h"
#include "program/captured.h"

namespace plimsoll {

namespace {

// The peaks of a trace in which activations, and all else, were so many times as large.
struct Peaks {
  double low = 0, usual = 0, high = 0;
};

// Half as many tokens again as an equal share: what the busiest ranks of published runs had in their first steps.
constexpr StandInRange kRoutedTokens{1, 1.5};

bool routes_freely(const Job& job) {
  if (!job.program.megatron) return false;
  const MegatronConfig c(job.family, job.config, *job.program.megatron);
  return c.experts > 0 && c.capacity == 0 && c.imbalance == 1;
}

// By scope: whether it is of the experts.
std::vector<bool> expert_scopes(const Trace& trace) {
  std::vector<bool> out(trace.scopes.size());
  for (size_t i = 1; i < out.size(); ++i) out[i] = out[trace.scopes[i].parent] || trace.names[trace.scopes[i].name] == "experts";
  return out;
}

// `only`: scopes whose activations are meant; empty: all.
Peaks scaled_peaks(const Trace& trace, const StandInRange& activations, const StandInRange& rest, const std::vector<bool>& only = {}) {
  Peaks peaks;
  double soft = 0, firm = 0;
  std::vector<Category> label(trace.storages.size());
  for (const Event& e : trace.events) {
    if (e.kind == Event::Kind::phase || e.kind == Event::Kind::step) continue;
    const StorageRecord& s = trace.storages[e.storage];
    const double bytes = static_cast<double>(s.bytes);
    const bool meant = only.empty() || only[s.scope];
    const auto sum_of = [&](Category c) -> double& {
      return meant && (c == Category::activation || c == Category::backward) ? soft : firm;
    };
    if (e.kind != Event::Kind::alloc) sum_of(label[e.storage]) -= bytes;
    if (e.kind == Event::Kind::free) continue;
    label[e.storage] = e.kind == Event::Kind::alloc ? s.born_as : static_cast<Category>(e.value);
    sum_of(label[e.storage]) += bytes;
    peaks.low = std::max(peaks.low, soft * activations.low + firm * rest.low);
    peaks.usual = std::max(peaks.usual, soft + firm);
    peaks.high = std::max(peaks.high, soft * activations.high + firm * rest.high);
  }
  return peaks;
}

Bytes at_least_nothing(Bytes b) { return std::max(b, Bytes{0}); }

// By as much as the counter moves where nothing, or all, of what the counts count is there. Of `of`: allocated or reserved.
void widen(ByteRange& range, int64_t CudaTimeline::*of, int64_t now, const CountRange& counts) {
  const auto [least, most] = std::minmax({now, counts.none.*of, counts.all.*of});
  range.low = at_least_nothing(range.low - Bytes{now - least});
  range.high += Bytes{most - now};
}

DeviceMemory with_count_range(const CountRange& counts, const CudaTimeline& observed, const DeviceMemory& memory) {
  DeviceMemory m = memory;
  widen(m.allocated, &CudaTimeline::allocated_peak, observed.allocated_peak, counts);
  widen(m.reserved, &CudaTimeline::reserved_peak, observed.reserved_peak, counts);
  widen(m.device, &CudaTimeline::reserved_peak, observed.reserved_peak, counts);
  return m;
}

}  // namespace

DeviceMemory with_stand_in_range(const Job& job, const Trace& trace, const DeviceMemory& memory) {
  if (job.captured) {
    const std::optional<CountRange> counts = count_range(job);
    return counts ? with_count_range(*counts, cuda_timeline(trace, parse_alloc_conf(job.alloc_conf)), memory) : memory;
  }
  const bool unknown = job.family == kWeightsOnly;
  if (!unknown && !routes_freely(job)) return memory;
  const bool headers = job.config.find({"weights"}) != nullptr;
  const Peaks peaks = unknown ? scaled_peaks(trace, kStandInActivations, headers ? StandInRange{1, 1} : kStandInParameters)
                              : scaled_peaks(trace, kRoutedTokens, StandInRange{1, 1}, expert_scopes(trace));
  const Bytes less{static_cast<int64_t>(peaks.usual - peaks.low)}, more{static_cast<int64_t>(peaks.high - peaks.usual)};
  DeviceMemory m = memory;
  for (ByteRange* r : {&m.allocated, &m.reserved, &m.device}) {
    r->low = at_least_nothing(r->low - less);
    r->high += more;
  }
  return m;
}

}  // namespace plimsoll
