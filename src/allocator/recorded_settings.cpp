#include "allocator/recorded_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

bool shows_expandable_segments(const Snapshot& snapshot) {
  const auto maps = [](const SnapshotEntry& e) { return e.action == SnapshotEntry::Action::segment_map; };
  return std::any_of(snapshot.segments.begin(), snapshot.segments.end(), [](const SnapshotSegment& s) { return s.expandable; }) ||
         std::any_of(snapshot.traces.begin(), snapshot.traces.end(),
                     [&](const SnapshotTrace& t) { return std::any_of(t.entries.begin(), t.entries.end(), maps); });
}

// Keys are the lower ends of the intervals in MiB: "1", "2", "4", ...
void set_divisions(const SnapshotSettings& s, AllocConf& conf) {
  for (const auto& [mib, divisions] : s.roundup_power2_divisions) {
    if (mib <= 0 || !std::has_single_bit(static_cast<uint64_t>(mib)) ||
        (divisions != 0 && !std::has_single_bit(static_cast<uint64_t>(divisions))))
      throw Error(fmt::format("[snapshot] allocator_settings.roundup_power2_divisions has {} for {} MiB", divisions, mib),
                  "both are powers of two in a file that PyTorch wrote");
    const auto interval = static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(mib)));
    conf.divisions[std::min(interval, kDivisionIntervals - 1)] = divisions;
  }
}

}  // namespace

RecordedSettings recorded_settings(const Snapshot& snapshot) {
  RecordedSettings out;
  if (!snapshot.settings) {
    out.conf.expandable_segments = shows_expandable_segments(snapshot);
    out.note = "the file has no settings (PyTorch before 2.3): taken as the defaults";
    if (out.conf.expandable_segments) out.note += " with expandable segments, which it shows";
    return out;
  }
  const SnapshotSettings& s = *snapshot.settings;
  try {
    out.conf = parse_alloc_conf(s.conf);
  } catch (const Error& e) {
    out.note = fmt::format("PYTORCH_CUDA_ALLOC_CONF was '{}', which PyTorch 2.11 refuses ({}): taken from the effective values",
                           printable(s.conf, 100), e.what());
  }
  if (s.max_split_size && *s.max_split_size != 0) out.conf.max_split_size = *s.max_split_size < 0 ? kUnlimited : *s.max_split_size;
  if (s.garbage_collection_threshold) {
    const double t = *s.garbage_collection_threshold;
    if (!(t >= 0 && t <= 1))
      throw Error(fmt::format("[snapshot] allocator_settings.garbage_collection_threshold is {}", t), "expected 0 to 1");
    out.conf.garbage_collection_threshold = t;
  }
  if (s.expandable_segments) out.conf.expandable_segments = *s.expandable_segments;
  set_divisions(s, out.conf);
  return out;
}

}  // namespace plimsoll
