// What a recorded run says about its memory: who holds it at the peak, what is never given back, where the holes are, and what other
// allocator settings would have made of the same run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "allocator/recorded_settings.h"
#include "allocator/recorded_trace.h"

namespace plimsoll {

struct Holder {
  std::string name;  // "forward (model.py:57)", "model.py"
  int64_t bytes = 0, blocks = 0;
};

// Where one step ends and the next begins, as indices into the recorded operations.
struct StepMarks {
  std::vector<size_t> at;  // in order
  std::string source;      // "as given", "the annotation 'ProfilerStep'"; empty: none were found
};

// Blocks of one place that are alive at the end and were born step after step.
struct Leak {
  std::string place;
  int64_t bytes = 0, blocks = 0;
  size_t steps = 0;  // in how many steps some of them were born
  int64_t bytes_per_step = 0;
};

struct OtherSettings {
  std::string conf;
  int64_t reserved_peak = 0, retries = 0;
  bool runs_out = false;
};

struct SnapshotStory {
  RecordedRun run;
  RecordedSettings settings;
  RecordedTrace recorded;
  SnapshotReplay replay;  // as recorded
  MemoryCurve curve;      // at the allocated peak
  std::vector<LiveStorage> alive;
  std::vector<Holder> by_place, by_file;      // at the peak, the largest first
  std::vector<PlacedSegment> final_segments;  // at the end
  StepMarks marks;
  std::vector<Leak> leaks;            // the most bytes first
  std::vector<OtherSettings> others;  // the first is the recorded one, laid out afresh; empty: nothing was recorded
};

// A user's wish for marks: numbers of entries ("120,4500"), or a text that an annotation or a place has in it; empty: they are looked for.
SnapshotStory snapshot_story(const Snapshot& snapshot, std::optional<int> device, const std::string& marks);

}  // namespace plimsoll
