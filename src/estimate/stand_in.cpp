#include "estimate/stand_in.h"

#include <algorithm>

#include "model/weights_only.h"

namespace plimsoll {

namespace {

// The peaks of a trace in which activations, and all else, were so many times as large.
struct Peaks {
  double low = 0, usual = 0, high = 0;
};

Peaks scaled_peaks(const Trace& trace, const StandInRange& activations, const StandInRange& rest) {
  Peaks peaks;
  double soft = 0, firm = 0;
  std::vector<Category> label(trace.storages.size());
  const auto sum_of = [&](Category c) -> double& { return c == Category::activation || c == Category::backward ? soft : firm; };
  for (const Event& e : trace.events) {
    if (e.kind == Event::Kind::phase || e.kind == Event::Kind::step) continue;
    const StorageRecord& s = trace.storages[e.storage];
    const double bytes = static_cast<double>(s.bytes);
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

}  // namespace

DeviceMemory with_stand_in_range(const Job& job, const Trace& trace, const DeviceMemory& memory) {
  if (job.family != kWeightsOnly) return memory;
  const bool headers = job.config.find({"weights"}) != nullptr;
  const Peaks peaks = scaled_peaks(trace, kStandInActivations, headers ? StandInRange{1, 1} : kStandInParameters);
  const Bytes less{static_cast<int64_t>(peaks.usual - peaks.low)}, more{static_cast<int64_t>(peaks.high - peaks.usual)};
  DeviceMemory m = memory;
  for (ByteRange* r : {&m.allocated, &m.reserved, &m.device}) {
    r->low = at_least_nothing(r->low - less);
    r->high += more;
  }
  return m;
}

}  // namespace plimsoll
