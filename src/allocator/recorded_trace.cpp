#include "allocator/recorded_trace.h"

#include <algorithm>
#include <map>

namespace plimsoll {

namespace {

using Kind = RecordedOperation::Kind;

constexpr const char* kBefore = "allocated before the recording";

// Layers that are alike are one: "addmm (transformer.h.*.mlp)".
std::string folded(const std::string& place) {
  std::string out;
  for (size_t i = 0; i < place.size();) {
    size_t end = i + 1;
    if (place[i] == '.') end = std::min(place.find_first_not_of("0123456789", i + 1), place.size());
    const bool number = end > i + 1 && (end == place.size() || place[end] == '.' || place[end] == ')');
    out += number ? ".*" : std::string(1, place[i]);
    i = number ? end : i + 1;
  }
  return out;
}

class Naming {
 public:
  Naming(const Snapshot& snapshot, Trace& trace) : snapshot_(snapshot), trace_(trace) {}

  StorageRecord storage(int64_t bytes, uint32_t stack, bool before) {
    const SnapshotStack& s = snapshot_.stacks[stack];
    const std::string& place = snapshot_.places[s.place];
    StorageRecord out{bytes,
                      trace_.intern(!place.empty() ? folded(place)
                                    : before       ? kBefore
                                                   : "no Python frame"),
                      0, Category::activation, Phase::forward};
    ScopeId scope = 0;
    for (const uint32_t frame : s.frames) scope = scope_of(scope, frame);
    out.scope = scope;
    return out;
  }

 private:
  ScopeId scope_of(ScopeId parent, uint32_t frame) {
    const auto [it, added] = scopes_.try_emplace({parent, frame}, 0);
    if (added) it->second = trace_.add_scope(parent, snapshot_.places[frame]);
    return it->second;
  }

  const Snapshot& snapshot_;
  Trace& trace_;
  std::map<std::pair<ScopeId, uint32_t>, ScopeId> scopes_;
};

// Who allocated what is still there at the end, by address.
std::map<int64_t, uint32_t> final_stacks(const Snapshot& snapshot, int device) {
  std::map<int64_t, uint32_t> out;
  for (const SnapshotSegment& s : snapshot.segments)
    for (const SnapshotBlock& b : s.blocks)
      if (s.device == device && b.state != SnapshotBlock::State::free) out[b.address] = b.stack;
  return out;
}

}  // namespace

RecordedTrace recorded_trace(const Snapshot& snapshot, const RecordedRun& run) {
  RecordedTrace out;
  Trace& trace = out.trace;
  Naming naming(snapshot, trace);
  static const std::vector<SnapshotEntry> kNone;
  const auto device = static_cast<size_t>(run.device);
  const std::vector<SnapshotEntry>& entries = device < snapshot.traces.size() ? snapshot.traces[device].entries : kNone;
  std::vector<bool> freed(run.blocks);
  for (const RecordedOperation& op : run.operations)
    if (op.kind == Kind::free || op.kind == Kind::request_free) freed[op.block] = true;
  const std::map<int64_t, uint32_t> known = final_stacks(snapshot, run.device);
  const auto add = [&](const StorageRecord& s) {
    trace.events.push_back({Event::Kind::alloc, 0, static_cast<StorageId>(trace.storages.size())});
    trace.storages.push_back(s);
  };
  for (const CudaStartSegment& s : run.start)
    for (const CudaStartBlock& b : s.blocks) {
      const auto it = freed[trace.storages.size()] ? known.end() : known.find(b.address);
      add(naming.storage(b.requested, it == known.end() ? 0 : it->second, true));
    }
  for (uint32_t i = 0; i < run.start_waiting.size(); ++i)
    if (run.start_waiting[i]) trace.events.push_back({Event::Kind::free, 0, i});
  out.start = static_cast<int64_t>(trace.events.size());
  trace.events.push_back({Event::Kind::step, 0, 0});
  for (const RecordedOperation& op : run.operations) {
    if (op.kind == Kind::alloc) add(naming.storage(op.bytes, entries[op.entry].stack, false));
    if (op.kind == Kind::free || op.kind == Kind::request_free) trace.events.push_back({Event::Kind::free, 0, op.block});
    if (op.kind == Kind::oom) out.failed[out.event_of.size()] = snapshot.places[snapshot.stacks[entries[op.entry].stack].place];
    out.event_of.push_back(static_cast<int64_t>(trace.events.size()) - 1);
  }
  return out;
}

MemoryCurve recorded_curve(const RecordedTrace& recorded, const RecordedRun& run, const AllocConf& conf, const CudaDevice& device,
                           int64_t operation) {
  MemoryCurve out = memory_curve(recorded.trace, recorded.event_at(operation), {}, false);
  // What is drawn counts changes; the one step mark is no change.
  out.reserved = {{0, run.start_reserved}};
  out.begins = static_cast<size_t>(recorded.start);
  for (size_t i = 0; i < run.operations.size(); ++i)
    if (run.operations[i].kind == Kind::oom)
      out.failures.push_back({static_cast<size_t>(recorded.event_of[i]), run.operations[i].bytes, recorded.failed.at(i)});
  for (size_t i = 0; i < run.operations.size(); ++i)
    if (run.operations[i].reserved != out.reserved.back().bytes)
      out.reserved.push_back({static_cast<size_t>(recorded.event_of[i]), run.operations[i].reserved});
  out.segments = layout_at(run, conf, device, operation);
  out.marks.clear();
  return out;
}

}  // namespace plimsoll
