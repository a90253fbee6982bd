#include "trace/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "trace/snapshot_stacks.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Id = Pickle::Id;
using Kind = Pickle::Kind;
using Action = SnapshotEntry::Action;
using State = SnapshotBlock::State;

constexpr int64_t kHighestAddress = int64_t{1} << 61;
constexpr int64_t kLargestMemory = int64_t{1} << 50;         // 1 PiB: beyond any device
constexpr int64_t kLargestRequest = (int64_t{1} << 60) - 1;  // PyTorch's own limit for one allocation
constexpr int64_t kMostDevices = 1 << 16;
constexpr size_t kMostKeys = 256;  // of a segment, block or entry; PyTorch writes at most 13

// Where a value is, for messages: "segments[3].blocks[0].size".
struct Place {
  const Place* up = nullptr;
  std::string_view key;
  int64_t index = -1;

  std::string text() const {
    const std::string above = up ? up->text() : "";
    if (index >= 0) return fmt::format("{}[{}]", above, index);
    return above.empty() ? std::string(key) : fmt::format("{}.{}", above, key);
  }
};

// A key of this format and its id in this file, once the file has it.
struct Key {
  std::string_view name;
  mutable Id id = Pickle::kNothing;
};

class SnapshotReader : public PickleConsumer {
 public:
  explicit SnapshotReader(const std::string& name) : name_(name), stacks_(p_, out_) { actions_.fill(Pickle::kNothing); }

  Snapshot read(std::string_view bytes, const ReadProgress& progress) {
    read_pickle(p_, bytes, name_, progress, this);
    const Id root = p_.root();
    const Place top;
    if (p_.kind(root) == Kind::list) {  // torch.cuda.memory_snapshot() alone
      segments(root, {&top, "segments"});
    } else if (p_.kind(root) == Kind::dict && find(root, key("segments")) != Pickle::kNothing) {
      segments(list(root, key("segments"), top), {&top, "segments"});
      if (has(root, key("device_traces"))) traces(list(root, key("device_traces"), top), {&top, "device_traces"});
      if (has(root, key("allocator_settings")))
        settings(field(root, key("allocator_settings"), Kind::dict, top), {&top, "allocator_settings"});
      if (has(root, key("external_annotations"))) annotations(list(root, key("external_annotations"), top), {&top, "external_annotations"});
    } else {
      throw Error(fmt::format("[snapshot] {} holds {} without 'segments'", name_, kind_name(p_.kind(root))),
                  "a memory snapshot is what torch.cuda.memory._dump_snapshot(FILE) writes");
    }
    check_segments();
    return std::move(out_);
  }

  std::string_view key() const override { return "device_traces"; }
  std::string_view interned_key() const override { return "frames"; }
  int64_t intern(Id frames) override { return stacks_.stack(frames); }
  void take(size_t device, Id dict) override {
    const Place top, traces{&top, "device_traces"}, list{&traces, "", static_cast<int64_t>(device)};
    SnapshotTrace& trace = trace_of(device, traces);
    const Place here{&list, "", static_cast<int64_t>(trace.entries.size())};
    expect_one(dict, here);
    entry(dict, trace, here);
  }

 private:
  static constexpr const char* kActions[] = {
      "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot"};

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(fmt::format("[snapshot] {}: {}", name_, what), "docs/replay.md says which fields of a snapshot are read");
  }

  // --- dicts

  static Key key(std::string_view name) { return {name}; }

  // The last value wins, as in Python.
  Id find(Id dict, const Key& key) const {
    Id found = Pickle::kNothing;
    if (key.id == Pickle::kNothing) key.id = p_.find_text(key.name);
    if (key.id == Pickle::kNothing) return found;
    for (auto it = p_.items(dict).begin(); it != std::default_sentinel; ++it) {
      const Id name = *it, value = *++it;
      if (name == key.id) found = value;
    }
    return found;
  }

  bool has(Id dict, const Key& key) const {
    const Id id = find(dict, key);
    return id != Pickle::kNothing && p_.kind(id) != Kind::none;
  }

  void expect(Id id, Kind kind, const Place& at) const {
    if (p_.kind(id) != kind) refuse(fmt::format("{} is {}, expected {}", at.text(), kind_name(p_.kind(id)), kind_name(kind)));
  }

  // One of many dicts. Each is a value of its own in a file that PyTorch wrote; one that is shared again and again could make
  // a small file cost any amount of memory and time.
  void expect_one(Id id, const Place& at) {
    expect(id, Kind::dict, at);
    if (p_.size(id) > kMostKeys) refuse(fmt::format("{} has {} keys", at.text(), p_.size(id)));
    if (++read_ > p_.values()) refuse(fmt::format("{} is there more than once", at.text()));
  }

  Id field(Id dict, const Key& key, Kind kind, const Place& at) const {
    const Id id = find(dict, key);
    if (id == Pickle::kNothing) refuse(fmt::format("{} has no '{}'", at.text(), key.name));
    expect(id, kind, {&at, key.name});
    return id;
  }

  Id list(Id dict, const Key& key, const Place& at) const { return field(dict, key, Kind::list, at); }

  int64_t in_range(Id id, int64_t least, int64_t most, const Place& at) const {
    expect(id, Kind::integer, at);
    const int64_t value = p_.integer(id);
    if (value < least || value > most) refuse(fmt::format("{} is {}, expected {} to {}", at.text(), value, least, most));
    return value;
  }

  int64_t whole(Id dict, const Key& key, int64_t least, int64_t most, const Place& at) const {
    return in_range(field(dict, key, Kind::integer, at), least, most, {&at, key.name});
  }

  int64_t whole_or(Id dict, const Key& key, int64_t missing, int64_t least, int64_t most, const Place& at) const {
    return has(dict, key) ? whole(dict, key, least, most, at) : missing;
  }

  std::string_view word(Id dict, const Key& key, const Place& at) const { return p_.text(field(dict, key, Kind::text, at)); }

  // --- segments

  void segments(Id list, const Place& at) {
    int64_t i = 0;
    for (const Id id : p_.items(list)) {
      const Place here{&at, "", i++};
      expect_one(id, here);
      segment(id, here);
    }
  }

  void segment(Id dict, const Place& at) {
    SnapshotSegment s;
    s.device = static_cast<int>(whole_or(dict, device_, 0, 0, kMostDevices - 1, at));
    s.address = whole(dict, address_, 0, kHighestAddress, at);
    s.size = whole(dict, total_size_, 1, kLargestMemory, at);
    s.stream = whole_or(dict, stream_, 0, INT64_MIN, INT64_MAX, at);
    const std::string_view type = word(dict, segment_type_, at);
    if (type != "small" && type != "large")
      refuse(fmt::format("{}.segment_type is '{}', expected small or large", at.text(), printable(type, 40)));
    s.small = type == "small";
    if (has(dict, is_expandable_)) s.expandable = p_.boolean(field(dict, is_expandable_, Kind::boolean, at));
    if (has(dict, segment_pool_id_)) s.pool = pool(find(dict, segment_pool_id_), {&at, segment_pool_id_.name});
    blocks(list(dict, blocks_, at), s, {&at, blocks_.name});
    out_.segments.push_back(std::move(s));
  }

  std::pair<int64_t, int64_t> pool(Id id, const Place& at) const {
    if ((p_.kind(id) != Kind::tuple && p_.kind(id) != Kind::list) || p_.size(id) != 2) refuse(at.text() + " is not a pair of numbers");
    auto it = p_.items(id).begin();
    const Id first = *it, second = *++it;
    return {in_range(first, INT64_MIN, INT64_MAX, at), in_range(second, INT64_MIN, INT64_MAX, at)};
  }

  // Before 2.1 blocks have no address: each begins where the one before ends, as it does in every version.
  void blocks(Id list, SnapshotSegment& s, const Place& at) {
    int64_t end = s.address, i = 0;
    for (const Id id : p_.items(list)) {
      const Place here{&at, "", i++};
      expect_one(id, here);
      SnapshotBlock b;
      b.size = whole(id, size_, 1, s.size, here);
      b.address = whole_or(id, address_, end, 0, kHighestAddress, here);
      if (b.address != end)
        refuse(fmt::format("{}.address is {}, expected {}, where the block before it ends", here.text(), b.address, end));
      b.state = state(word(id, state_, here), here);
      b.requested = b.state == State::free ? 0 : requested(id, b.size, here);
      if (b.state != State::free && has(id, frames_)) b.stack = stack_of(id, here);
      end = checked_add(end, b.size);
      s.blocks.push_back(b);
    }
    if (end != s.address + s.size) refuse(fmt::format("{} add up to {} bytes of {}", at.text(), end - s.address, s.size));
  }

  // requested_size since 2.0; before, the newest entry of the block's history has real_size.
  int64_t requested(Id block, int64_t size, const Place& at) const {
    int64_t bytes = whole_or(block, requested_size_, 0, 0, size, at);
    if (bytes == 0 && has(block, history_)) {
      const Id history = list(block, history_, at);
      if (p_.size(history) > 0) {
        const Id newest = *p_.items(history).begin();
        const Place here{&at, history_.name};
        expect(newest, Kind::dict, here);
        if (p_.size(newest) > kMostKeys) refuse(fmt::format("{} has {} keys", here.text(), p_.size(newest)));
        bytes = whole_or(newest, real_size_, 0, 0, size, here);
      }
    }
    return bytes == 0 ? size : bytes;
  }

  State state(std::string_view text, const Place& at) const {
    if (text == "active_allocated") return State::allocated;
    if (text == "active_pending_free" || text == "active_awaiting_free") return State::pending;
    if (text != "inactive") refuse(fmt::format("{}.state is '{}', which is not known", at.text(), printable(text, 40)));
    return State::free;
  }

  void check_segments() {
    std::stable_sort(out_.segments.begin(), out_.segments.end(), [](const SnapshotSegment& a, const SnapshotSegment& b) {
      return std::pair(a.device, a.address) < std::pair(b.device, b.address);
    });
    int64_t total = 0;
    const SnapshotSegment* before = nullptr;
    for (const SnapshotSegment& s : out_.segments) {
      const bool same = before && before->device == s.device;
      if (same && before->address + before->size > s.address)
        refuse(fmt::format("segments at {} and {} of device {} overlap", before->address, s.address, s.device));
      total = (same ? total : 0) + s.size;
      if (total > kLargestMemory) refuse(fmt::format("the segments of device {} hold more than 2^50 bytes", s.device));
      before = &s;
    }
  }

  // --- traces

  SnapshotTrace& trace_of(size_t device, const Place& at) {
    if (device >= static_cast<size_t>(kMostDevices)) refuse(fmt::format("{} has more than {} devices", at.text(), kMostDevices));
    if (out_.traces.size() <= device) out_.traces.resize(device + 1);
    return out_.traces[device];
  }

  // What was not taken while the file was read: lists without entries, and entries that are written in an unusual way.
  void traces(Id list, const Place& at) {
    size_t i = 0;
    for (const Id id : p_.items(list)) {
      const Place here{&at, "", static_cast<int64_t>(i)};
      expect(id, Kind::list, here);
      SnapshotTrace& trace = trace_of(i++, at);
      for (const Id one : p_.items(id)) {
        if (p_.kind(one) == Kind::none) continue;  // was taken
        const Place there{&here, "", static_cast<int64_t>(trace.entries.size())};
        expect_one(one, there);
        entry(one, trace, there);
      }
    }
  }

  void entry(Id dict, SnapshotTrace& trace, const Place& at) {
    SnapshotEntry e;
    const Id action = field(dict, action_, Kind::text, at);
    e.action = action_of(action);
    const bool plain = e.action < Action::oom, of_segment = plain && e.action >= Action::segment_alloc;
    if (plain || e.action == Action::oom) e.size = whole(dict, size_, 0, of_segment ? kLargestMemory : kLargestRequest, at);
    if (plain) e.address = whole(dict, addr_, 0, kHighestAddress, at);
    if (e.action == Action::oom) e.address = whole_or(dict, device_free_, kLargestMemory, 0, kLargestMemory, at);
    e.stream = whole_or(dict, stream_, 0, INT64_MIN, INT64_MAX, at);
    if (has(dict, frames_)) e.stack = stack_of(dict, at);
    const int64_t time = whole_or(dict, time_us_, 0, 0, int64_t{1} << 62, at);
    if (trace.entries.empty()) trace.first_time = time;
    trace.last_time = e.time = time;
    trace.entries.push_back(e);
  }

  Action action_of(Id text) {
    const auto known = std::find(actions_.begin(), actions_.end(), text);
    if (known != actions_.end()) return static_cast<Action>(known - actions_.begin());
    const auto* named = std::find(std::begin(kActions), std::end(kActions), p_.text(text));
    if (named == std::end(kActions)) return Action::unknown;
    actions_[static_cast<size_t>(named - std::begin(kActions))] = text;
    return static_cast<Action>(named - std::begin(kActions));
  }

  uint32_t stack_of(Id dict, const Place& at) {
    const Id id = find(dict, frames_);
    if (p_.kind(id) == Kind::interned) return static_cast<uint32_t>(p_.interned(id));
    expect(id, Kind::list, {&at, frames_.name});
    return stacks_.stack(id);
  }

  void annotations(Id list, const Place& at) {
    const Key name = key("name"), stage = key("stage");
    int64_t i = 0;
    for (const Id id : p_.items(list)) {
      const Place here{&at, "", i++};
      expect_one(id, here);
      SnapshotAnnotation a;
      a.time = whole_or(id, time_us_, 0, 0, int64_t{1} << 62, here);
      if (has(id, stage)) a.start = word(id, stage, here) != "END";
      a.name = printable(word(id, name, here), 120);
      out_.annotations.push_back(std::move(a));
    }
  }

  // --- settings

  void settings(Id dict, const Place& at) {
    SnapshotSettings s;
    const Key conf = key("PYTORCH_CUDA_ALLOC_CONF"), split = key("max_split_size"), garbage = key("garbage_collection_threshold"),
              expandable = key("expandable_segments"), roundup = key("roundup_power2_divisions");
    if (has(dict, conf)) s.conf = std::string(word(dict, conf, at));
    if (has(dict, split)) s.max_split_size = whole(dict, split, -1, INT64_MAX, at);
    if (has(dict, garbage)) s.garbage_collection_threshold = p_.real(field(dict, garbage, Kind::real, at));
    if (has(dict, expandable)) s.expandable_segments = p_.boolean(field(dict, expandable, Kind::boolean, at));
    if (has(dict, roundup)) divisions(field(dict, roundup, Kind::dict, at), s, {&at, roundup.name});
    out_.settings = std::move(s);
  }

  void divisions(Id dict, SnapshotSettings& s, const Place& at) const {
    for (auto it = p_.items(dict).begin(); it != std::default_sentinel; ++it) {
      const Id name = *it, value = *++it;
      const std::string_view text = p_.text(name);
      const Place here{&at, text};
      int64_t mib = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mib);
      if (error != std::errc{} || end != text.data() + text.size())
        refuse(fmt::format("{} has a key '{}'", at.text(), printable(text, 40)));
      s.roundup_power2_divisions[mib] = in_range(value, 0, int64_t{1} << 40, here);
    }
  }

  Pickle p_;
  const std::string& name_;
  Snapshot out_;
  SnapshotStacks stacks_;
  uint64_t read_ = 0;  // segments, blocks and entries
  std::array<Id, std::size(kActions)> actions_{};
  const Key device_ = key("device"), address_ = key("address"), total_size_ = key("total_size"), stream_ = key("stream"),
            segment_type_ = key("segment_type"), is_expandable_ = key("is_expandable"), segment_pool_id_ = key("segment_pool_id"),
            blocks_ = key("blocks"), size_ = key("size"), state_ = key("state"), requested_size_ = key("requested_size"),
            history_ = key("history"), real_size_ = key("real_size"), action_ = key("action"), addr_ = key("addr"),
            device_free_ = key("device_free"), frames_ = key("frames"), time_us_ = key("time_us");
};

}  // namespace

Snapshot read_snapshot(std::string_view bytes, const std::string& name, const ReadProgress& progress) {
  return SnapshotReader(name).read(bytes, progress);
}

}  // namespace plimsoll
