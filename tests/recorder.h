// What PyTorch's recorder would have written of a run of our own caching allocator: a ring buffer of entries, and the state at
// the end.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "allocator/cuda_caching.h"
#include "trace/snapshot.h"

namespace plimsoll {

class Recorder {
 public:
  using Action = SnapshotEntry::Action;

  explicit Recorder(const std::string& conf = "", int64_t capacity = int64_t{1} << 40)
      : conf_(parse_alloc_conf(conf)), text_(conf), allocator_({capacity, 0, {}}, conf_) {}

  // False: out of memory.
  bool alloc(int64_t id, int64_t bytes, int32_t stream = 0) {
    ++stack_;
    CudaBlock* block = allocator_.allocate(bytes, stream);
    record_device(stack_, stream);
    if (!block) {
      record(Action::oom, allocator_.device_free(), rounded_size(bytes, conf_), stream, stack_);
      return false;
    }
    record(Action::alloc, block->address, bytes, stream, stack_);
    blocks_[id] = block;
    return true;
  }

  void free(int64_t id) {
    CudaBlock* block = take(id);
    const SnapshotEntry e{Action::free_requested, ++stack_, block->address, block->requested, handle(block->stream)};
    allocator_.free(block);
    entries_.push_back(e);
    entries_.push_back({Action::free_completed, e.stack, e.address, e.size, e.stream});
  }

  void request_free(int64_t id) {
    CudaBlock* block = take(id);
    const SnapshotEntry e{Action::free_requested, ++stack_, block->address, block->requested, handle(block->stream)};
    entries_.push_back(e);
    waiting_[id] = {allocator_.request_free(block), e};
  }

  void complete_free(int64_t id) {
    auto [ticket, e] = waiting_.at(id);
    waiting_.erase(id);
    e.action = Action::free_completed;
    entries_.push_back(e);
    allocator_.complete_free(ticket);
  }

  void empty_cache() {
    while (!waiting_.empty()) complete_free(waiting_.begin()->first);
    allocator_.empty_cache();
    record_device(kEmptyCache);
  }

  void next_segment_at(int64_t address) { allocator_.next_segment_at(address); }

  const CudaCachingAllocator& allocator() const { return allocator_; }
  size_t entries() const { return entries_.size(); }
  bool alive(int64_t id) const { return blocks_.contains(id); }
  bool waits(int64_t id) const { return waiting_.contains(id); }

  // With the newest `most` entries.
  Snapshot snapshot(size_t most = SIZE_MAX) const {
    Snapshot out;
    const size_t hidden = entries_.size() - std::min(most, entries_.size());
    out.traces.push_back({{entries_.begin() + static_cast<int64_t>(hidden), entries_.end()}, 7, 7});
    out.stacks.resize(stack_ + 2);
    out.stacks[kEmptyCache].empties_cache = true;
    out.settings = SnapshotSettings{text_, {}, {}, {}, {}};
    for (const auto& [id, segment] : allocator_.segments()) add_segment(segment, out);
    return out;
  }

 private:
  static constexpr uint32_t kEmptyCache = 1;

  static int64_t handle(int32_t stream) { return stream == 0 ? 0 : 94'000'000'000'000 + stream * 16; }

  CudaBlock* take(int64_t id) {
    CudaBlock* block = blocks_.at(id);
    blocks_.erase(id);
    return block;
  }

  void record(Action action, int64_t address, int64_t size, int32_t stream, uint32_t stack) {
    entries_.push_back({action, stack, address, size, handle(stream)});
  }

  // A segment is of the stream that it was taken for.
  void record_device(uint32_t stack, int32_t stream = 0) {
    const bool pages = conf_.expandable_segments;
    for (const DeviceEvent& e : allocator_.device_events()) {
      if (e.bytes > 0) segment_stream_[e.address] = stream;
      const Action action =
          e.bytes > 0 ? (pages ? Action::segment_map : Action::segment_alloc) : (pages ? Action::segment_unmap : Action::segment_free);
      record(action, e.address, std::abs(e.bytes), std::prev(segment_stream_.upper_bound(e.address))->second, stack);
    }
    allocator_.clear_device_events();
  }

  static void add_segment(const CudaSegment& segment, Snapshot& out) {
    using State = SnapshotBlock::State;
    bool open = false;
    for (const CudaBlock* b = segment.first; b; b = b->next) {
      if (b->mapped && !open) out.segments.push_back({0, b->address, 0, handle(b->stream), {}, b->pool->small, b->is_expandable(), {}});
      open = b->mapped;
      if (!open) continue;
      out.segments.back().size += b->size;
      out.segments.back().blocks.push_back({b->address, b->size, b->requested,
                                            b->allocated   ? State::allocated
                                            : b->is_free() ? State::free
                                                           : State::pending});
    }
  }

  AllocConf conf_;
  std::string text_;
  CudaCachingAllocator allocator_;
  std::vector<SnapshotEntry> entries_;
  std::map<int64_t, CudaBlock*> blocks_;
  std::map<int64_t, std::pair<int64_t, SnapshotEntry>> waiting_;
  std::map<int64_t, int32_t> segment_stream_;
  uint32_t stack_ = kEmptyCache;
};

}  // namespace plimsoll
