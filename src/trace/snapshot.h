// A PyTorch memory snapshot (torch.cuda.memory._dump_snapshot, or a pickled torch.cuda.memory_snapshot()) as plain data: the
// segments at the end, and for each device the ring buffer of what its allocator did. Files of PyTorch 1.13 to 2.11; what an
// older version did not write has a stated default. Nothing is interpreted here; allocator/recorded_run.h does that.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trace/pickle.h"

namespace plimsoll {

struct SnapshotBlock {
  enum class State : uint8_t { allocated, pending, free };  // pending: freed, waiting for other streams
  int64_t address = 0;
  int64_t size = 0;
  int64_t requested = 0;  // `size` where the file does not say (before 2.0)
  State state = State::free;
  uint32_t stack = 0;  // who allocated it: index into Snapshot::stacks; 0: not recorded
};

// A cudaMalloc'ed segment, or a contiguous mapped part of an expandable one. Its blocks tile it, lowest address first.
struct SnapshotSegment {
  int device = 0;
  int64_t address = 0;
  int64_t size = 0;
  int64_t stream = 0;                // the handle; 0: the default stream
  std::pair<int64_t, int64_t> pool;  // (0, 0): the default pool, else a captured graph's or a MemPool's
  bool small = false;
  bool expandable = false;
  std::vector<SnapshotBlock> blocks;
};

struct SnapshotEntry {
  enum class Action : uint8_t {
    alloc,
    free_requested,
    free_completed,
    segment_alloc,
    segment_free,
    segment_map,
    segment_unmap,
    oom,
    snapshot,
    unknown  // an action of a later PyTorch
  };
  Action action = Action::unknown;
  uint32_t stack = 0;   // index into Snapshot::stacks; 0: none recorded
  int64_t address = 0;  // of oom: what the device had free
  int64_t size = 0;     // of alloc and free_*: as requested; of oom: rounded
  int64_t stream = 0;
  int64_t time = 0;  // microseconds; 0 before 2.2
};

// What is kept of a recorded call stack.
struct SnapshotStack {
  bool empties_cache = false;    // torch.cuda.empty_cache() is on it
  uint32_t place = 0;            // index into Snapshot::places: the innermost frame outside of PyTorch
  std::vector<uint32_t> frames;  // all of those, outermost first
};

// What the program said about itself (record_function, the profiler's steps), since 2.5.
struct SnapshotAnnotation {
  int64_t time = 0;  // microseconds
  bool start = true;
  std::string name;
};

struct SnapshotTrace {
  std::vector<SnapshotEntry> entries;     // oldest first
  int64_t first_time = 0, last_time = 0;  // microseconds; 0 before 2.2
};

// allocator_settings, since 2.3.
struct SnapshotSettings {
  std::string conf;                       // PYTORCH_CUDA_ALLOC_CONF as given
  std::optional<int64_t> max_split_size;  // -1: unlimited
  std::optional<double> garbage_collection_threshold;
  std::optional<bool> expandable_segments;
  std::map<int64_t, int64_t> roundup_power2_divisions;  // MiB -> divisions
};

struct Snapshot {
  std::vector<SnapshotSegment> segments;  // by device, then address
  std::vector<SnapshotTrace> traces;      // one for each device; empty: a file of segments alone
  std::vector<SnapshotStack> stacks{SnapshotStack{}};
  std::vector<std::string> places{""};  // "forward (model.py:57)"; 0: none
  std::vector<SnapshotAnnotation> annotations;
  std::optional<SnapshotSettings> settings;
};

// Entries are taken while the file is read, so that memory goes by their number (40 bytes each and what the file's memo has for them), by
// the segments and by what is distinct of call stacks and texts, not by the file's length. Throws Error that names the key for a value of
// the wrong type or an impossible size. Unknown keys are ignored.
Snapshot read_snapshot(std::string_view bytes, const std::string& name, const ReadProgress& progress = {});

}  // namespace plimsoll
