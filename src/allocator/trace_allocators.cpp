#include "allocator/trace_allocators.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "allocator/bfc.h"
#include "allocator/pinned_host.h"
#include "util/bytes.h"
#include "util/checked.h"
#include "util/error.h"

namespace plimsoll {

namespace {

// Calls `alloc(storage, bytes)`, which says whether there was room, and `free(storage)`; returns the event that found none.
template <class Alloc, class Free>
std::optional<int64_t> go_through(const Trace& trace, Alloc alloc, Free free) {
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.kind == Event::Kind::alloc && !alloc(e.storage, trace.storages[e.storage].bytes)) return static_cast<int64_t>(i);
    if (e.kind == Event::Kind::free) free(e.storage);
  }
  return {};
}

AllocatorFigures run_ideal(const Trace& trace, const TraceAllocatorOptions& options) {
  const int64_t limit = options.memory ? *options.memory - options.in_use : INT64_MAX;
  int64_t now = 0, peak = 0;
  AllocatorFigures out;
  out.oom_event = go_through(
      trace,
      [&](StorageId, int64_t bytes) {
        if (checked_add(now, bytes) > limit) return false;
        peak = std::max(peak, now += bytes);
        return true;
      },
      [&](StorageId id) { now -= trace.storages[id].bytes; });
  out.circumstances = "no rounding and no fragmentation";
  out.figures = {{"tensors_peak_bytes", "tensors peak", "the sum of what is alive: no allocator needs less", peak},
                 {"tensors_end_bytes", "tensors at the end", "", now}};
  return out;
}

// xla/pjrt/gpu/gpu_helpers.cc gives its allocator a fraction of the device's total memory; JAX's default is 0.75
// (XLA_PYTHON_CLIENT_MEM_FRACTION), taken at once. It cannot take what others hold.
BfcOptions bfc_options(const TraceAllocatorOptions& options) {
  if (!options.memory) return {int64_t{1} << 50, true, 0};
  if (options.in_use >= *options.memory)
    throw Error(fmt::format("[device] {} bytes in use by others leave nothing of {}", options.in_use, *options.memory),
                "a smaller --in-use");
  return {std::min(*options.memory / 4 * 3, *options.memory - options.in_use), false, 0};
}

AllocatorFigures run_bfc(const Trace& trace, const TraceAllocatorOptions& options) {
  const BfcOptions bfc = bfc_options(options);
  BfcAllocator allocator(bfc);
  std::vector<BfcAllocator::Chunk*> chunks(trace.storages.size(), nullptr);
  BfcStats at_peak;
  AllocatorFigures out;
  out.oom_event = go_through(
      trace,
      [&](StorageId id, int64_t bytes) {
        if (bytes == 0) return true;
        chunks[id] = allocator.allocate(bytes);
        if (chunks[id] && allocator.in_use() > at_peak.in_use) at_peak = allocator.stats();
        return chunks[id] != nullptr;
      },
      [&](StorageId id) {
        if (chunks[id]) allocator.free(std::exchange(chunks[id], nullptr));
      });
  const BfcStats end = allocator.stats();
  out.circumstances = options.memory ? fmt::format("{} taken at once, JAX's default of 75 % of the device", to_string(Bytes{bfc.limit}))
                                     : "regions that double, as with XLA_PYTHON_CLIENT_PREALLOCATE=false; no limit";
  out.figures = {
      {"in_use_peak_bytes", "in use peak", "chunks of 256 bytes and their multiples", end.peak_in_use},
      {"pool_peak_bytes", "pool peak", "regions taken from the device; they are never given back", end.peak_pool},
      {"fragmentation_bytes", "fragmentation", "in the pool but in no chunk in use, at the peak in use", at_peak.pool - at_peak.in_use},
      {"rounding_bytes", "rounding", "of the bytes in use, chunks larger than their tensors", at_peak.in_use - at_peak.requested},
      {"largest_free_bytes", "largest free chunk", "at the peak in use", at_peak.largest_free},
      {"regions", "regions", "", end.regions, false}};
  return out;
}

AllocatorFigures run_pinned(const Trace& trace, const TraceAllocatorOptions& options) {
  PinnedHostAllocator allocator(options.conf);
  std::vector<int64_t> handles(trace.storages.size(), -1);
  PinnedStats at_peak;
  AllocatorFigures out;
  go_through(
      trace,
      [&](StorageId id, int64_t bytes) {
        checked_add(allocator.stats().reserved, allocator.rounded(bytes));
        handles[id] = allocator.allocate(bytes);
        if (allocator.stats().reserved > at_peak.reserved) at_peak = allocator.stats();
        return true;
      },
      [&](StorageId id) { allocator.free(std::exchange(handles[id], -1)); });
  const PinnedStats& end = allocator.stats();
  out.circumstances = "every tensor of the trace in pinned host memory";
  out.figures = {
      {"allocated_peak_bytes", "allocated peak", "blocks of powers of two", end.peak_allocated},
      {"reserved_peak_bytes", "reserved peak", "page-locked memory; freed blocks stay cached by size", end.peak_reserved},
      {"cached_bytes", "cached", "reserved but in no tensor, at the reserved peak", at_peak.reserved - at_peak.allocated},
      {"rounding_bytes", "rounding", "of the allocated bytes, blocks larger than their tensors", at_peak.allocated - at_peak.requested}};
  return out;
}

}  // namespace

const std::vector<TraceAllocator>& trace_allocators() {
  static const std::vector<TraceAllocator> kAllocators{
      {"ideal", "An allocator that wastes nothing", true, false, run_ideal},
      {"bfc", "XLA's BFC allocator (JAX, TensorFlow)", true, false, run_bfc},
      {"pinned", "PyTorch's allocator of pinned host memory", false, true, run_pinned},
  };
  return kAllocators;
}

}  // namespace plimsoll
