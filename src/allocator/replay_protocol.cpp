#include "allocator/replay_protocol.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <optional>
#include <unordered_map>

#include "allocator/cuda_caching.h"
#include "allocator/cuda_layout.h"
#include "util/error.h"

namespace plimsoll {

namespace {

constexpr const char* kSeeOperations = "docs/replay.md describes the operations";

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\r' || text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  return text;
}

// The words of a line; a fifth one is an error for every operation, so four are enough.
struct Words {
  std::string_view at[4];
  int count = 0;

  explicit Words(std::string_view line) {
    while (!line.empty()) {
      const size_t end = std::min(line.find(' '), line.size());
      if (count == 4) {
        ++count;
        return;
      }
      at[count++] = line.substr(0, end);
      line.remove_prefix(end == line.size() ? end : end + 1);
    }
  }
};

void append(std::string& out, int64_t n) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, n).ptr);
}

void append_field(std::string& out, int64_t n) {
  out += '\t';
  append(out, n);
}

// "+20971520x3,-60817408", or "." for nothing.
void append_events(std::string& out, const std::vector<DeviceEvent>& events) {
  if (events.empty()) out += '.';
  for (size_t i = 0; i < events.size();) {
    size_t same = i;
    while (same < events.size() && events[same].bytes == events[i].bytes) ++same;
    if (i > 0) out += ',';
    if (events[i].bytes > 0) out += '+';
    append(out, events[i].bytes);
    if (same - i > 1) {
      out += 'x';
      append(out, static_cast<int64_t>(same - i));
    }
    i = same;
  }
}

}  // namespace

struct ProtocolSession::State {
  int64_t line = 0, operations = 0;
  std::optional<int64_t> capacity;
  int64_t other = 0;
  std::optional<double> fraction;
  AllocConf conf;
  std::optional<CudaCachingAllocator> allocator;                                  // made at the first operation
  std::unordered_map<std::string, CudaBlock*, TextHash, std::equal_to<>> blocks;  // nullptr: an allocation of 0 bytes

  [[noreturn]] void refuse(const std::string& what, const char* hint = kSeeOperations) const {
    throw Error(fmt::format("[replay] line {}: {}", line, what), hint);
  }

  int64_t number(std::string_view text, const char* what, int64_t least, int64_t most) const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
      refuse(fmt::format("{} '{}' is not a whole number from {} to {}", what, text, least, most));
    return value;
  }

  int32_t stream(std::string_view text) const { return static_cast<int32_t>(number(text, "stream", 0, INT32_MAX)); }

  void header(std::string_view text) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos || allocator) return;
    const std::string_view key = trimmed(text.substr(0, colon)), value = trimmed(text.substr(colon + 1));
    if (key == "capacity") capacity = number(value, "capacity", INT64_MIN, INT64_MAX);
    if (key == "other") other = number(value, "other", INT64_MIN, INT64_MAX);
    if (key == "settings") conf = parse_alloc_conf(value);
    if (key == "fraction") {
      const std::string copy(value);
      char* end = nullptr;
      fraction = std::strtod(copy.c_str(), &end);
      if (copy.empty() || *end != '\0') refuse(fmt::format("fraction '{}' is not a number", value));
    }
  }

  void start() {
    if (!capacity) refuse("an operation before '# capacity: BYTES'", "the header names the device's memory");
    allocator.emplace(CudaDevice{*capacity, other, fraction}, conf);
  }

  CudaBlock* find(std::string_view id) const {
    const auto it = blocks.find(id);
    if (it == blocks.end()) refuse(fmt::format("no allocation is called '{}'", id));
    return it->second;
  }

  void answer(std::string& out, const CudaBlock* placed, const OomNumbers* oom) const {
    const CudaStats& s = allocator->stats();
    out += oom ? "oom" : "ok";
    for (const int64_t n : {s.allocated, s.reserved, s.active, s.requested, s.inactive_split, s.segments}) append_field(out, n);
    out += '\t';
    if (placed) {
      append(out, placed->segment->ordinal);
      out += ':';
      append(out, placed->offset());
    } else {
      out += '-';
    }
    out += '\t';
    append_events(out, allocator->device_events());
    if (oom) {
      for (const int64_t n : {oom->tried, oom->device_free, oom->allocated, oom->unallocated}) append_field(out, n);
      out += '\t';
      oom->allowed ? append(out, *oom->allowed) : void(out += '-');
      out += '\t' + printed_sizes(*oom);
    }
    out += '\n';
  }

  void alloc(const Words& w, std::string& out) {
    const int64_t bytes = number(w.at[2], "bytes", 0, INT64_MAX);
    const int32_t on = w.count > 3 ? stream(w.at[3]) : 0;
    if (blocks.contains(w.at[1])) refuse(fmt::format("'{}' is already allocated", w.at[1]));
    CudaBlock* block = bytes == 0 ? nullptr : allocator->allocate(bytes, on);
    if (block || bytes == 0) blocks.emplace(w.at[1], block);
    answer(out, block, block || bytes == 0 ? nullptr : &allocator->last_oom());
  }

  void layout(std::string& out) const {
    const std::vector<LayoutSegment> segments = layout_of(*allocator);
    size_t count = 0;
    for (const LayoutSegment& s : segments) {
      out += fmt::format("seg\t{}\t{}\t{}\t{}\t{}\n", s.ordinal, s.offset, s.size, s.small ? "small" : "large", s.stream);
      for (const LayoutBlock& b : s.blocks) out += fmt::format("blk\t{}\t{}\t{}\t{}\n", b.offset, b.size, b.requested, b.state);
      count += s.blocks.size();
    }
    out += fmt::format("layout\t{}\t{}\n", segments.size(), count);
  }

  void operation(const Words& w, std::string_view line, std::string& out) {
    const std::string_view word = w.at[0];
    const auto is = [&](std::string_view name, int words) { return word == name && w.count == words; };
    if (is("alloc", 3) || is("alloc", 4)) return alloc(w, out);
    if (is("free", 2)) {
      if (CudaBlock* block = find(w.at[1])) allocator->free(block);
      blocks.erase(blocks.find(w.at[1]));
    } else if (is("record_stream", 3)) {
      CudaBlock* block = find(w.at[1]);
      const int32_t used_on = stream(w.at[2]);
      if (block) allocator->record_stream(block, used_on);
    } else if (is("events", 2) && (w.at[1] == "pending" || w.at[1] == "done")) {
      allocator->set_events_pending(w.at[1] == "pending");
    } else if (is("empty_cache", 1)) {
      allocator->empty_cache();
    } else if (is("reset_peak", 1)) {
      allocator->reset_peak();
    } else if (is("layout", 1)) {
      return layout(out);
    } else if (is("summary", 1)) {
      const CudaStats& s = allocator->stats();
      out += fmt::format("summary\t{}\t{}\t{}\t{}\n", s.peak_allocated, s.peak_reserved, s.retries, s.ooms);
      return;
    } else if (is("next_segment_at", 2)) {
      allocator->next_segment_at(number(w.at[1], "address", 0, INT64_MAX / 2));
      return;
    } else {
      refuse(fmt::format("'{}' is not an operation", line.substr(0, 80)));
    }
    answer(out, nullptr, nullptr);
  }
};

ProtocolSession::ProtocolSession() : state_(std::make_unique<State>()) {}
ProtocolSession::~ProtocolSession() = default;
int64_t ProtocolSession::operations() const { return state_->operations; }

void ProtocolSession::feed(std::string_view line, std::string& out) {
  State& s = *state_;
  ++s.line;
  line = trimmed(line);
  if (line.empty()) return;
  if (line[0] == '#') return s.header(line.substr(1));
  if (!s.allocator) s.start();
  s.allocator->clear_device_events();
  s.operation(Words(line), line, out);
  ++s.operations;
}

std::string replay_protocol(std::string_view script) {
  ProtocolSession session;
  std::string out;
  while (!script.empty()) {
    const size_t end = script.find('\n');
    session.feed(script.substr(0, end), out);
    script.remove_prefix(end == std::string_view::npos ? script.size() : end + 1);
  }
  return out;
}

}  // namespace plimsoll
