#include "allocator/recorded_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "allocator/recorded_start.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Action = SnapshotEntry::Action;
using Kind = RecordedOperation::Kind;

bool releases(Action a) { return a == Action::segment_free || a == Action::segment_unmap; }
bool takes(Action a) { return a == Action::segment_alloc || a == Action::segment_map; }

// Turns the entries into operations, oldest first. Segments are what the allocator makes of the operations, so entries of
// segments only say what was recorded; but a release that nobody's allocation needed was an empty_cache().
class Conversion {
 public:
  Conversion(const Snapshot& snapshot, const std::vector<SnapshotEntry>& entries, const RecordedStart& start, const StreamNumbers& streams,
             const AllocConf& conf, RecordedRun& out)
      : snapshot_(snapshot), entries_(entries), fits_(start.fits), streams_(streams), conf_(conf), out_(out) {
    if (start.cut_off) segment_at_ = start.cut_off->address;
    if (start.cut_off) taken_before_ = start.cut_off->size;
    for (const CudaStartSegment& s : start.segments) {
      out_.start_reserved += s.size;
      for (const CudaStartBlock& b : s.blocks) {
        out_.start_allocated += start.waiting[out_.blocks] ? 0 : b.size;
        (start.waiting[out_.blocks] ? waiting_ : live_)[b.address] = out_.blocks;
        ++out_.blocks;
      }
    }
  }

  void run() {
    follow_reserved();
    out_.operations.reserve(entries_.size());
    for (at_ = 0; at_ < entries_.size(); ++at_)
      if (fits_[at_]) convert(entries_[at_]);
    if (most_ < INT64_MAX || free_ < INT64_MAX) out_.limit = limit();
  }

 private:
  // Bytes held after every entry, and the most there ever were.
  void follow_reserved() {
    int64_t now = out_.start_reserved + taken_before_;
    out_.reserved_peak = now;
    reserved_.reserve(entries_.size());
    for (size_t i = 0; i < entries_.size(); ++i) {
      const SnapshotEntry& e = entries_[i];
      if (fits_[i]) now += takes(e.action) ? e.size : releases(e.action) ? -e.size : 0;
      out_.reserved_peak = std::max(out_.reserved_peak, now);
      reserved_.push_back(now);
    }
  }

  int64_t reserved_before(size_t i) const { return i == 0 ? out_.start_reserved + taken_before_ : reserved_[i - 1]; }

  void convert(const SnapshotEntry& e) {
    switch (e.action) {
      case Action::alloc: return alloc(e);
      case Action::free_requested: return request(e);
      case Action::free_completed: return complete(e);
      case Action::segment_free:
      case Action::segment_unmap: return release();
      case Action::segment_alloc:
      case Action::segment_map:
        if (!segment_at_) segment_at_ = e.address;
        return;
      case Action::oom: return oom(e);
      case Action::snapshot: return;
      case Action::unknown: ++out_.unknown_actions; return;
    }
  }

  RecordedOperation& add(Kind kind, const SnapshotEntry& e, uint32_t block) {
    RecordedOperation& op = out_.operations.emplace_back();
    op.kind = kind;
    op.block = block;
    op.entry = static_cast<uint32_t>(at_);
    op.bytes = e.size;
    op.address = e.address;
    op.reserved = reserved_[at_];
    return op;
  }

  void alloc(const SnapshotEntry& e) {
    RecordedOperation& op = add(Kind::alloc, e, out_.blocks);
    op.stream = streams_.of(e.stream, e.address);
    op.segment_at = std::exchange(segment_at_, std::nullopt);
    live_[e.address] = out_.blocks++;
  }

  // Without other streams both halves of a free are recorded in a row.
  void request(const SnapshotEntry& e) {
    const auto it = live_.find(e.address);
    if (it == live_.end()) return;
    const uint32_t block = it->second;
    live_.erase(it);
    const size_t next = at_ + 1;
    if (next < entries_.size() && fits_[next] && entries_[next].action == Action::free_completed && entries_[next].address == e.address) {
      add(Kind::free, e, block);
      at_ = next;
      return;
    }
    add(Kind::request_free, e, block);
    waiting_[e.address] = block;
  }

  void complete(const SnapshotEntry& e) {
    const auto waiting = waiting_.find(e.address);
    if (waiting != waiting_.end()) {
      add(Kind::complete_free, e, waiting->second);
      waiting_.erase(waiting);
      return;
    }
    const auto live = live_.find(e.address);
    if (live == live_.end()) return;
    add(Kind::free, e, live->second);
    live_.erase(live);
  }

  void oom(const SnapshotEntry& e) {
    RecordedOperation& op = add(Kind::oom, e, 0);
    op.stream = streams_.of(e.stream, -1);
    ++out_.ooms;
    segment_at_.reset();
    const int64_t wanted = segment_size(rounded_size(e.size, conf_), conf_);
    most_ = std::min(most_, reserved_[at_] + wanted);
    if (e.address < wanted) free_ = std::min(free_, reserved_[at_] + e.address);
  }

  // A run of releases: either an empty_cache(), or an allocation failed, emptied the cache and was tried again.
  void release() {
    const size_t first = at_;
    while (at_ + 1 < entries_.size() && releases(entries_[at_ + 1].action)) ++at_;
    if (was_retry(first)) {
      ++out_.retries;
      return;
    }
    ++out_.empty_caches;
    add(Kind::empty_cache, entries_[at_], 0);
  }

  bool was_retry(size_t first) {
    const SnapshotEntry& released = entries_[first];
    if (snapshot_.stacks[released.stack].empties_cache || at_ + 1 == entries_.size()) return false;
    const SnapshotEntry& next = entries_[at_ + 1];
    if (next.action == Action::oom) return true;
    if (!takes(next.action)) return false;
    const int64_t failed = reserved_before(first) + next.size;  // it could not hold that much
    // An allocation has one call stack; without stacks, a limit that was exceeded at another time was no limit.
    const bool retry = released.stack != 0 && next.stack != 0 ? released.stack == next.stack : failed > out_.reserved_peak;
    if (retry && conf_.garbage_collection_threshold == 0) most_ = std::min(most_, failed);
    return retry;
  }

  RecordedLimit limit() const {
    RecordedLimit l{out_.reserved_peak, most_, 0};
    if (free_ < INT64_MAX) {
      l.taken = l.most = std::max(free_, l.least);
    } else {
      l.most = std::max(l.most, l.least);
      l.taken = l.least + (l.most - l.least) / 2;
    }
    return l;
  }

  const Snapshot& snapshot_;
  const std::vector<SnapshotEntry>& entries_;
  const std::vector<bool>& fits_;
  const StreamNumbers& streams_;
  const AllocConf& conf_;
  RecordedRun& out_;
  size_t at_ = 0;
  std::vector<int64_t> reserved_;
  std::unordered_map<int64_t, uint32_t> live_, waiting_;  // block by address
  std::optional<int64_t> segment_at_;
  int64_t taken_before_ = 0;  // for the oldest entry
  int64_t most_ = INT64_MAX;  // holding this much failed
  int64_t free_ = INT64_MAX;  // holding this much would have left nothing free
};

void add_end(const std::vector<SnapshotSegment>& segments, RecordedRun& out) {
  for (const SnapshotSegment& s : segments) {
    ++out.end_segments;
    out.end_reserved += s.size;
    for (const SnapshotBlock& b : s.blocks) out.end_allocated += b.state == SnapshotBlock::State::allocated ? b.size : 0;
  }
}

}  // namespace

std::vector<int> devices_of(const Snapshot& snapshot) {
  std::set<int> devices;
  for (const SnapshotSegment& s : snapshot.segments) devices.insert(s.device);
  for (size_t i = 0; i < snapshot.traces.size(); ++i)
    if (!snapshot.traces[i].entries.empty()) devices.insert(static_cast<int>(i));
  return {devices.begin(), devices.end()};
}

int busiest_device(const Snapshot& snapshot) {
  std::map<int, std::pair<size_t, int64_t>> work;  // entries, then bytes
  for (const SnapshotSegment& s : snapshot.segments) work[s.device].second += s.size;
  for (size_t i = 0; i < snapshot.traces.size(); ++i) work[static_cast<int>(i)].first += snapshot.traces[i].entries.size();
  int busiest = 0;
  for (const auto& [device, amount] : work)
    if (amount > work[busiest]) busiest = device;
  return busiest;
}

RecordedRun recorded_run(const Snapshot& snapshot, int device, const AllocConf& conf) {
  static const std::vector<SnapshotEntry> kNone;
  RecordedRun out;
  out.device = device;
  std::vector<SnapshotSegment> segments;
  for (const SnapshotSegment& s : snapshot.segments)
    if (s.device == device) segments.push_back(s);
  const bool traced = device >= 0 && static_cast<size_t>(device) < snapshot.traces.size();
  const std::vector<SnapshotEntry>& entries = traced ? snapshot.traces[static_cast<size_t>(device)].entries : kNone;
  const std::vector<int> devices = devices_of(snapshot);
  if (!devices.empty() && !std::binary_search(devices.begin(), devices.end(), device)) {
    std::vector<std::string> names;
    for (const int d : devices) names.push_back(std::to_string(d));
    throw Error(fmt::format("[snapshot] nothing of device {} is in the file", device), "it has: " + join(names, ", "));
  }
  if (entries.size() > UINT32_MAX / 2) throw Error("[snapshot] more than 2^31 entries", "record fewer (max_entries)");

  const StreamNumbers streams(segments, entries);
  RecordedStart start = recorded_start(segments, entries, streams, conf);
  out.entries = entries.size();
  if (traced)
    out.microseconds = snapshot.traces[static_cast<size_t>(device)].last_time - snapshot.traces[static_cast<size_t>(device)].first_time;
  out.streams = streams.streams();
  out.private_pools = streams.private_pools();
  for (size_t i = 0; i < start.fits.size(); ++i) {
    if (start.fits[i]) continue;
    ++out.left_out;
    if (!out.first_left_out) out.first_left_out = static_cast<uint32_t>(i);
  }
  add_end(segments, out);
  Conversion(snapshot, entries, start, streams, conf, out).run();
  out.start = std::move(start.segments);
  out.start_waiting = std::move(start.waiting);
  return out;
}

Trace trace_of(const RecordedRun& run) {
  Trace out;
  const auto add = [&](int64_t bytes, Phase phase) {
    out.events.push_back({Event::Kind::alloc, 0, static_cast<StorageId>(out.storages.size())});
    out.storages.push_back({bytes, 0, 0, Category::activation, phase});
  };
  for (const CudaStartSegment& s : run.start)
    for (const CudaStartBlock& b : s.blocks) add(b.requested, Phase::setup);
  for (uint32_t i = 0; i < run.start_waiting.size(); ++i)
    if (run.start_waiting[i]) out.events.push_back({Event::Kind::free, 0, i});
  out.events.push_back({Event::Kind::step, 0, 0});
  for (const RecordedOperation& op : run.operations) {
    if (op.kind == Kind::alloc) add(op.bytes, Phase::forward);
    if (op.kind == Kind::free || op.kind == Kind::request_free) out.events.push_back({Event::Kind::free, 0, op.block});
  }
  return out;
}

}  // namespace plimsoll
