// A Snapshot as the file that it was read from.
#pragma once

#include <map>
#include <string>

#include "trace/pickle_writer.h"
#include "trace/snapshot.h"

namespace plimsoll {

// The file that torch.cuda.memory._dump_snapshot would have written. A stack with a place has one Python frame.
inline std::string pickled(const Snapshot& s, int protocol = 4) {
  PickleWriter w(protocol);
  std::map<uint32_t, uint32_t> stacks;
  const auto key = [&](const char* name) { w.text(name); };
  const auto number = [&](const char* name, int64_t v) {
    key(name);
    w.integer(v);
  };
  const auto word = [&](const char* name, std::string_view v) {
    key(name);
    w.text(v);
  };
  const auto frames = [&](uint32_t stack) {
    key("frames");
    const auto known = stacks.find(stack);
    if (known != stacks.end()) return w.get(known->second);
    stacks[stack] = w.open(']');
    w.open('}');
    word("name", s.stacks[stack].empties_cache ? "empty_cache" : "forward");
    word("filename", "model.py");
    number("line", stack);
    w.close('u');
    w.close('e');
  };
  w.open('}');
  key("segments");
  w.open(']');
  for (const SnapshotSegment& segment : s.segments) {
    w.open('}');
    number("device", segment.device);
    number("address", segment.address);
    number("total_size", segment.size);
    number("stream", segment.stream);
    word("segment_type", segment.small ? "small" : "large");
    key("segment_pool_id");
    w.pair(segment.pool.first, segment.pool.second);
    key("is_expandable");
    w.boolean(segment.expandable);
    key("blocks");
    w.open(']');
    for (const SnapshotBlock& b : segment.blocks) {
      static const char* kStates[] = {"active_allocated", "active_pending_free", "inactive"};
      w.open('}');
      number("address", b.address);
      number("size", b.size);
      number("requested_size", b.requested);
      word("state", kStates[static_cast<size_t>(b.state)]);
      w.close('u');
    }
    w.close('e');
    w.close('u');
  }
  w.close('e');
  key("device_traces");
  w.open(']');
  for (const SnapshotTrace& trace : s.traces) {
    static const char* kActions[] = {"alloc",        "free_requested", "free_completed", "segment_alloc",
                                     "segment_free", "segment_map",    "segment_unmap",  "oom",
                                     "snapshot",     "from_the_future"};
    w.open(']');
    size_t n = 0;
    for (const SnapshotEntry& e : trace.entries) {
      if (w.batches() && n++ % 1000 == 999) w.batch();
      w.open('}');
      word("action", kActions[static_cast<size_t>(e.action)]);
      number(e.action == SnapshotEntry::Action::oom ? "device_free" : "addr", e.address);
      number("size", e.size);
      number("stream", e.stream);
      number("time_us", trace.first_time);
      if (e.stack) frames(e.stack);
      w.close('u');
    }
    w.close('e');
  }
  w.close('e');
  if (s.settings) {
    key("allocator_settings");
    w.open('}');
    word("PYTORCH_CUDA_ALLOC_CONF", s.settings->conf);
    if (s.settings->max_split_size) number("max_split_size", *s.settings->max_split_size);
    if (s.settings->garbage_collection_threshold) {
      key("garbage_collection_threshold");
      w.real(*s.settings->garbage_collection_threshold);
    }
    if (s.settings->expandable_segments) {
      key("expandable_segments");
      w.boolean(*s.settings->expandable_segments);
    }
    if (!s.settings->roundup_power2_divisions.empty()) {
      key("roundup_power2_divisions");
      w.open('}');
      for (const auto& [mib, divisions] : s.settings->roundup_power2_divisions) number(std::to_string(mib).c_str(), divisions);
      w.close('u');
    }
    w.close('u');
  }
  w.close('u');
  return w.finish();
}

}  // namespace plimsoll
