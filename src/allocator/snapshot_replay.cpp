#include "allocator/snapshot_replay.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace plimsoll {

namespace {

using Kind = RecordedOperation::Kind;

class Replay {
 public:
  Replay(const RecordedRun& run, const AllocConf& conf, const CudaDevice& device, ReplayStart start)
      : run_(run), device_(device), allocator_(device, conf), exact_(start == ReplayStart::as_recorded) {
    blocks_.resize(run.blocks, nullptr);
    tickets_.resize(run.blocks, 0);
  }

  SnapshotReplay run() {
    begin();
    out_.start = out_.at_allocated_peak = out_.at_reserved_peak = moment(-1);
    for (size_t i = 0; i < run_.operations.size() && !out_.oom; ++i) {
      done_ = static_cast<int64_t>(i);
      perform(run_.operations[i]);
      if (now().allocated > out_.at_allocated_peak.allocated) out_.at_allocated_peak = moment(done_);
      if (now().reserved > out_.at_reserved_peak.reserved) out_.at_reserved_peak = moment(done_);
    }
    out_.end = moment(done_);
    out_.allocated_peak = now().peak_allocated;
    out_.reserved_peak = now().peak_reserved;
    out_.retries = now().retries;
    return out_;
  }

  std::vector<PlacedSegment> layout_after(int64_t operation) {
    begin();
    for (int64_t i = 0; i <= operation && !out_.oom; ++i) perform(run_.operations[static_cast<size_t>(i)]);
    std::unordered_map<const CudaBlock*, StorageId> number;
    for (uint32_t i = 0; i < blocks_.size(); ++i)
      if (blocks_[i]) number[blocks_[i]] = i;
    return placed_segments(allocator_, [&](const CudaBlock* b) { return number.at(b); });
  }

 private:
  void begin() {
    exact_ ? begin_as_recorded() : begin_afresh();
    for (uint32_t i = 0; i < run_.start_waiting.size() && !out_.oom; ++i)
      if (run_.start_waiting[i]) request_free(i);
    allocator_.reset_peak();
  }

  const CudaStats& now() const { return allocator_.stats(); }

  CudaMoment moment(int64_t operation) const {
    const CudaStats& s = now();
    return {operation, s.allocated, s.reserved, s.requested, s.inactive_split, s.segments};
  }

  void begin_as_recorded() {
    const std::vector<CudaBlock*> blocks = allocator_.restore(run_.start);
    std::copy(blocks.begin(), blocks.end(), blocks_.begin());
    if (allocator_.device_free() >= 0) return;
    const OomNumbers numbers{now().reserved, device_.capacity, 0, now().allocated, now().reserved - now().allocated, {}, false};
    out_.oom = ReplayOom{{}, now().reserved, numbers};
  }

  void begin_afresh() {
    uint32_t block = 0;
    for (const CudaStartSegment& s : run_.start)
      for (const CudaStartBlock& b : s.blocks) {
        blocks_[block] = allocator_.allocate(b.requested, s.stream);
        if (!blocks_[block++]) {
          out_.oom = ReplayOom{{}, b.requested, allocator_.last_oom()};
          return;
        }
      }
  }

  void request_free(uint32_t block) { tickets_[block] = allocator_.request_free(std::exchange(blocks_[block], nullptr)); }

  void perform(const RecordedOperation& op) {
    switch (op.kind) {
      case Kind::alloc: return allocate(op);
      case Kind::free: allocator_.free(std::exchange(blocks_[op.block], nullptr)); break;
      case Kind::request_free: request_free(op.block); break;
      case Kind::complete_free: allocator_.complete_free(tickets_[op.block]); break;
      case Kind::empty_cache: allocator_.empty_cache(); break;
      case Kind::oom: try_again(op); break;
    }
    compare(op, true);
  }

  void allocate(const RecordedOperation& op) {
    if (exact_) allocator_.next_segment_at(op.segment_at);
    CudaBlock* block = blocks_[op.block] = allocator_.allocate(op.bytes, op.stream);
    allocator_.next_segment_at({});
    if (!block) {
      out_.oom = ReplayOom{op.entry, op.bytes, allocator_.last_oom()};
      return;
    }
    const bool same = block->address == op.address;
    ++out_.check.placements;
    out_.check.placements_equal += same;
    compare(op, same);
  }

  // An allocation that failed in the recording: what would have come after it is not known, so one that succeeds is undone.
  void try_again(const RecordedOperation& op) {
    CudaBlock* block = allocator_.allocate(op.bytes, op.stream);
    ++(block ? out_.ooms_avoided : out_.ooms_repeated);
    if (block) allocator_.free(block);
    if (!block && !out_.first_repeated) out_.first_repeated = op.entry;
  }

  void compare(const RecordedOperation& op, bool same_place) {
    const bool same = now().reserved == op.reserved;
    ++out_.check.operations;
    out_.check.reserved_equal += same;
    if (!(same && same_place) && !out_.check.first_difference) out_.check.first_difference = op.entry;
  }

  const RecordedRun& run_;
  CudaDevice device_;
  CudaCachingAllocator allocator_;
  bool exact_;
  int64_t done_ = -1;
  std::vector<CudaBlock*> blocks_;
  std::vector<int64_t> tickets_;
  SnapshotReplay out_;
};

}  // namespace

SnapshotReplay replay_snapshot(const RecordedRun& run, const AllocConf& conf, const CudaDevice& device, ReplayStart start) {
  return Replay(run, conf, device, start).run();
}

std::vector<PlacedSegment> layout_at(const RecordedRun& run, const AllocConf& conf, const CudaDevice& device, int64_t operation) {
  return Replay(run, conf, device, ReplayStart::as_recorded).layout_after(operation);
}

}  // namespace plimsoll
