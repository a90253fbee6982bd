// The state of the allocator when a recording began: the final state with every entry undone, newest first.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/cuda_caching.h"
#include "trace/snapshot.h"

namespace plimsoll {

// Dense numbers for streams, in the order of their handles. A private pool of a stream has a number of its own: memory is
// never shared between streams, nor between pools.
class StreamNumbers {
 public:
  StreamNumbers(const std::vector<SnapshotSegment>& segments, const std::vector<SnapshotEntry>& entries);
  int32_t of(int64_t handle, int64_t address) const;
  int streams() const;
  int private_pools() const;

 private:
  struct Key {
    int64_t handle;
    std::pair<int64_t, int64_t> pool;
    auto operator<=>(const Key&) const = default;
  };
  Key key(int64_t handle, int64_t address) const;

  std::map<int64_t, const SnapshotSegment*> private_;  // by address
  std::map<Key, int32_t> numbers_;
};

struct RecordedStart {
  std::vector<CudaStartSegment> segments;
  std::vector<bool> waiting;  // by block, in order of the segments
  std::vector<bool> fits;     // by entry: whether it could be undone; one that could not is left out of the run
  // The oldest entry is an allocation, and this segment was taken for it right before: not in `segments`.
  std::optional<CudaStartSegment> cut_off;
};

// `segments` are those of one device, lowest address first.
RecordedStart recorded_start(const std::vector<SnapshotSegment>& segments, const std::vector<SnapshotEntry>& entries,
                             const StreamNumbers& streams, const AllocConf& conf);

}  // namespace plimsoll
