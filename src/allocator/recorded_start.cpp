#include "allocator/recorded_start.h"
#include "allocator/cuda_block.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace plimsoll {

namespace {

using Action = SnapshotEntry::Action;

// Memory held from the device: a plain segment, or contiguous pages.
struct Region {
  int64_t size;
  int32_t stream;
  bool small, expandable;
};

struct Block {
  int64_t size;  // 0: not known, the block was freed during the recording
  int64_t requested;
  bool waiting;
};

class Walk {
 public:
  Walk(const std::vector<SnapshotSegment>& segments, const std::vector<SnapshotEntry>& entries, const StreamNumbers& streams,
       const AllocConf& conf)
      : entries_(entries), streams_(streams), conf_(conf) {
    for (const SnapshotSegment& s : segments) add_final(s);
    const auto any = [&](Action action) {
      return std::any_of(entries.begin(), entries.end(), [&](const SnapshotEntry& e) { return e.action == action; });
    };
    has_requests_ = any(Action::free_requested);
    if (!any(Action::segment_unmap)) return;
    for (const SnapshotEntry& e : entries)
      if (e.size > 0 && (e.action == Action::alloc || e.action == Action::free_completed))
        is_small_.emplace(e.address, rounded_size(e.size, conf) <= kSmallSize);
  }

  RecordedStart back() {
    RecordedStart out;
    out.fits.resize(entries_.size());
    for (size_t i = entries_.size(); i-- > 0;) out.fits[i] = undo(entries_[i]);
    find_sizes(out.fits);
    find_cut_off(out);
    for (const auto& [address, region] : regions_) emit(address, region, out);
    return out;
  }

 private:
  using Regions = std::map<int64_t, Region>;
  using Blocks = std::map<int64_t, Block>;

  void add_final(const SnapshotSegment& s) {
    add_region(s.address, {s.size, streams_.of(s.stream, s.address), s.small, s.expandable});
    for (const SnapshotBlock& b : s.blocks)
      if (b.state != SnapshotBlock::State::free)
        blocks_.emplace(b.address, Block{b.size, b.requested, b.state == SnapshotBlock::State::pending});
  }

  // --- undoing one entry; false: it does not fit and nothing changes

  bool undo(const SnapshotEntry& e) {
    switch (e.action) {
      case Action::alloc: return e.size > 0 && blocks_.erase(e.address) == 1;
      case Action::free_requested: return undo_request(e);
      case Action::free_completed: return undo_free(e);
      case Action::segment_alloc: return undo_segment(e);
      case Action::segment_map: return undo_map(e);
      case Action::segment_free: return e.size > 0 && add_region(e.address, region_of(e, false));
      case Action::segment_unmap: return e.size > 0 && add_region(e.address, region_of(e, true));
      case Action::oom: return e.size > 0;
      case Action::snapshot:
      case Action::unknown: return true;
    }
    return true;
  }

  bool undo_request(const SnapshotEntry& e) {
    const auto it = blocks_.find(e.address);
    if (it == blocks_.end() || !it->second.waiting) return false;
    it->second.waiting = false;
    return true;
  }

  // The block is there again, at least as large as its request was.
  bool undo_free(const SnapshotEntry& e) {
    if (e.size == 0 || touches_block(e.address, e.size)) return false;
    const auto region = region_at(e.address);
    if (region == regions_.end() || e.address + e.size > region->first + region->second.size) return false;
    blocks_.emplace(e.address, Block{0, e.size, has_requests_});
    return true;
  }

  bool undo_segment(const SnapshotEntry& e) {
    const auto it = regions_.find(e.address);
    if (it == regions_.end() || it->second.expandable || it->second.size != e.size || touches_block(e.address, e.size)) return false;
    regions_.erase(it);
    return true;
  }

  bool undo_map(const SnapshotEntry& e) {
    const auto it = region_at(e.address);
    if (e.size == 0 || it == regions_.end() || !it->second.expandable || touches_block(e.address, e.size)) return false;
    const int64_t begin = it->first, end = begin + it->second.size;
    if (e.address + e.size > end) return false;
    Region rest = it->second;
    it->second.size = e.address - begin;
    if (it->second.size == 0) regions_.erase(it);
    rest.size = end - (e.address + e.size);
    if (rest.size > 0) regions_.emplace(e.address + e.size, rest);
    return true;
  }

  // --- regions and blocks

  Regions::iterator region_at(int64_t address) {
    auto it = regions_.upper_bound(address);
    if (it == regions_.begin()) return regions_.end();
    --it;
    return address < it->first + it->second.size ? it : regions_.end();
  }

  // Pages next to pages of the same kind are one region, as in a snapshot.
  bool add_region(int64_t address, Region region) {
    auto next = regions_.lower_bound(address);
    if (next != regions_.end() && next->first < address + region.size) return false;
    const auto joins = [&](const Region& a) {
      return a.expandable && region.expandable && a.stream == region.stream && a.small == region.small;
    };
    if (next != regions_.begin()) {
      const auto before = std::prev(next);
      const int64_t end = before->first + before->second.size;
      if (end > address) return false;
      if (end == address && joins(before->second)) {
        address = before->first;
        region.size += before->second.size;
        regions_.erase(before);
      }
    }
    if (next != regions_.end() && next->first == address + region.size && joins(next->second)) {
      region.size += next->second.size;
      regions_.erase(next);
    }
    regions_.emplace(address, region);
    return true;
  }

  // The entry has no pool: plain segments of the small pool have one size; pages are told by what was allocated in them, else
  // by their number.
  Region region_of(const SnapshotEntry& e, bool expandable) const {
    bool small = e.size <= kSmallSegment;
    if (expandable) {
      const auto it = is_small_.lower_bound(e.address);
      small = it != is_small_.end() && it->first < e.address + e.size ? it->second : e.size % conf_.large_segment_size != 0;
    }
    return {e.size, streams_.of(e.stream, e.address), small, expandable};
  }

  bool touches_block(int64_t address, int64_t size) const {
    const auto next = blocks_.lower_bound(address);
    if (next != blocks_.end() && next->first < address + size) return true;
    if (next == blocks_.begin()) return false;
    const auto before = std::prev(next);
    return before->first + std::max(before->second.size, before->second.requested) > address;
  }

  int64_t room(Blocks::const_iterator block, const Region& region, int64_t region_at) const {
    const auto next = std::next(block);
    const int64_t end = region_at + region.size;
    return (next == blocks_.end() ? end : std::min(end, next->first)) - block->first;
  }

  // --- sizes of the blocks that were freed during the recording

  // A rest of at most 1 MiB in a plain large segment is not split off: it is a hidden tail of the block. Before a larger gap
  // the tail shows when the first block is allocated there, because that begins where the gap truly begins.
  void find_sizes(const std::vector<bool>& fits) {
    std::map<int64_t, Blocks::iterator> gaps;  // by where they begin when there is no tail
    for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
      if (it->second.size != 0) continue;
      const auto region = region_at(it->first);
      const int64_t most = room(it, region->second, region->first);
      const int64_t rounded = std::min(rounded_size(it->second.requested, conf_), most);
      const bool splits_all = region->second.small || region->second.expandable;
      const bool whole = !splits_all && (most - rounded <= kSmallSize || rounded >= conf_.max_split_size);
      it->second.size = whole ? most : rounded;
      if (!splits_all && !whole) gaps.emplace(it->first + rounded, it);
    }
    for (size_t i = 0; i < entries_.size() && !gaps.empty(); ++i)
      if (fits[i]) look_for_tail(entries_[i], gaps);
  }

  void look_for_tail(const SnapshotEntry& e, std::map<int64_t, Blocks::iterator>& gaps) const {
    if (e.action == Action::free_completed) {
      const auto block = blocks_.find(e.address);
      if (block != blocks_.end()) gaps.erase(block->first + block->second.size);
    }
    if (e.action != Action::alloc) return;
    auto gap = gaps.upper_bound(e.address);
    if (gap == gaps.begin()) return;
    --gap;
    const int64_t tail = e.address - gap->first;
    if (tail > kSmallSize) return;
    gap->second->second.size += tail;
    gaps.erase(gap);
  }

  // The ring buffer may begin between a segment and the allocation that it was taken for. As a cached segment it would do as
  // well, except where max_split_size forbids to cut a cached one.
  void find_cut_off(RecordedStart& out) {
    if (entries_.empty() || !out.fits[0] || entries_[0].action != Action::alloc) return;
    const auto it = regions_.find(entries_[0].address);
    const int64_t size = rounded_size(entries_[0].size, conf_);
    if (it == regions_.end() || it->second.expandable || touches_block(it->first, it->second.size) || size >= conf_.max_split_size ||
        it->second.size < conf_.max_split_size)
      return;
    out.cut_off = CudaStartSegment{it->first, it->second.size, it->second.stream, it->second.small, false, {}};
    regions_.erase(it);
  }

  void emit(int64_t address, const Region& region, RecordedStart& out) const {
    CudaStartSegment& s =
        out.segments.emplace_back(CudaStartSegment{address, region.size, region.stream, region.small, region.expandable, {}});
    for (auto it = blocks_.lower_bound(address); it != blocks_.end() && it->first < address + region.size; ++it) {
      s.blocks.push_back({it->first, it->second.size, it->second.requested});
      out.waiting.push_back(it->second.waiting);
    }
  }

  const std::vector<SnapshotEntry>& entries_;
  const StreamNumbers& streams_;
  const AllocConf& conf_;
  Regions regions_;
  Blocks blocks_;
  std::map<int64_t, bool> is_small_;  // by address of something that was allocated or freed there; only when pages were unmapped
  bool has_requests_ = false;         // a later PyTorch can be told not to record some actions
};

}  // namespace

StreamNumbers::StreamNumbers(const std::vector<SnapshotSegment>& segments, const std::vector<SnapshotEntry>& entries) {
  for (const SnapshotSegment& s : segments)
    if (s.pool != std::pair<int64_t, int64_t>{}) private_.emplace(s.address, &s);
  for (const SnapshotSegment& s : segments) numbers_.emplace(Key{s.stream, s.pool}, 0);
  for (const SnapshotEntry& e : entries)
    if (e.action <= Action::oom) numbers_.emplace(key(e.stream, e.action == Action::oom ? -1 : e.address), 0);
  int32_t count = 0;
  for (auto& [key, number] : numbers_) number = count++;
}

StreamNumbers::Key StreamNumbers::key(int64_t handle, int64_t address) const {
  auto it = private_.upper_bound(address);
  if (it == private_.begin()) return {handle, {}};
  --it;
  return {handle, address < it->first + it->second->size ? it->second->pool : std::pair<int64_t, int64_t>{}};
}

int32_t StreamNumbers::of(int64_t handle, int64_t address) const { return numbers_.at(key(handle, address)); }

int StreamNumbers::streams() const {
  std::set<int64_t> handles;
  for (const auto& [key, number] : numbers_) handles.insert(key.handle);
  return static_cast<int>(handles.size());
}

int StreamNumbers::private_pools() const {
  std::set<std::pair<int64_t, int64_t>> pools;
  for (const auto& [key, number] : numbers_)
    if (key.pool != std::pair<int64_t, int64_t>{}) pools.insert(key.pool);
  return static_cast<int>(pools.size());
}

RecordedStart recorded_start(const std::vector<SnapshotSegment>& segments, const std::vector<SnapshotEntry>& entries,
                             const StreamNumbers& streams, const AllocConf& conf) {
  return Walk(segments, entries, streams, conf).back();
}

}  // namespace plimsoll
