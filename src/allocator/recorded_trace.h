// A recorded run as a Trace whose storages are its blocks: ops are the places that allocated ("forward (model.py:57)"), scopes the frames
// around them. What was there before the recording, and whose frames nobody kept, has a name that says so.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "allocator/memory_curve.h"
#include "allocator/recorded_run.h"
#include "allocator/snapshot_replay.h"

namespace plimsoll {

struct RecordedTrace {
  Trace trace;
  std::vector<int64_t> event_of;         // by operation: its event, or the last one before it
  int64_t start = 0;                     // the event that the operations follow
  std::map<size_t, std::string> failed;  // by operation: the place that asked in vain
  int64_t event_at(int64_t operation) const { return operation < 0 ? start : event_of[static_cast<size_t>(operation)]; }
};

RecordedTrace recorded_trace(const Snapshot& snapshot, const RecordedRun& run);

// The curve of a recorded run at one of its operations (-1: the start): reserved bytes and segments are those of the recording.
MemoryCurve recorded_curve(const RecordedTrace& recorded, const RecordedRun& run, const AllocConf& conf, const CudaDevice& device,
                           int64_t operation);

}  // namespace plimsoll
