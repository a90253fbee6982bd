#include "trace/profiler_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "trace/level_trace.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

constexpr int64_t kMostBytes = int64_t{1} << 50;  // bytes: beyond any device
constexpr int kGpu = 1;                           // c10::DeviceType::CUDA

struct MemoryEvent {
  double time = 0;
  int64_t thread = 0, bytes = 0, address = 0, allocated = 0, reserved = 0;
  int device_type = 0, device = -1;
};

// An op, a module or an annotation, from when to when.
struct Span {
  double begin = 0, end = 0;
  int64_t thread = 0;
  uint32_t name = 0;
  enum class Kind : uint8_t { op, module, annotation } kind = Kind::op;
};

struct Collected {
  std::vector<MemoryEvent> memory;
  std::vector<Span> spans;
  std::vector<std::string> names;
};

// Keeps of each element of traceEvents what is needed and forgets the rest at once.
class Collector : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t v) override { return number(static_cast<double>(v), v); }
  bool number_unsigned(number_unsigned_t v) override {
    return number(static_cast<double>(v), v > INT64_MAX ? INT64_MAX : static_cast<int64_t>(v));
  }
  bool number_float(number_float_t v, const string_t&) override { return number(v, 0); }
  bool string(string_t& v) override {
    if (depth_ != event_depth_) return true;
    if (key_ == "name") name_ = std::move(v);
    if (key_ == "cat") category_ = std::move(v);
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool key(string_t& v) override {
    if (depth_ == 1) in_events_ = v == "traceEvents";
    if (depth_ == event_depth_ || depth_ == event_depth_ + 1) key_ = std::move(v);
    return true;
  }
  bool start_object(size_t) override {
    ++depth_;
    if (depth_ == event_depth_) event_ = {}, name_.clear(), category_.clear(), duration_ = -1;
    return depth_ < 64;
  }
  bool end_object() override {
    if (depth_ == event_depth_ && in_events_) keep();
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (++depth_ == 1) in_events_ = true, event_depth_ = 2;  // a bare list of events
    return depth_ < 64;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error_at = position;
    return false;
  }

  Collected out;
  size_t error_at = 0;

 private:
  bool number(double real, int64_t whole) {
    if (depth_ == event_depth_) {
      if (key_ == "ts") event_.time = real;
      if (key_ == "dur") duration_ = real;
      if (key_ == "tid") event_.thread = whole;
    } else if (depth_ == event_depth_ + 1) {
      if (key_ == "Bytes") event_.bytes = whole;
      if (key_ == "Addr") event_.address = whole;
      if (key_ == "Total Allocated") event_.allocated = whole;
      if (key_ == "Total Reserved") event_.reserved = whole;
      if (key_ == "Device Type") event_.device_type = static_cast<int>(std::clamp<int64_t>(whole, 0, 255));
      if (key_ == "Device Id") event_.device = static_cast<int>(std::clamp<int64_t>(whole, -1, 65535));
    }
    return true;
  }

  void keep() {
    if (name_ == "[memory]") {
      if (event_.bytes != 0 && std::abs(event_.bytes) < kMostBytes) out.memory.push_back(event_);
      return;
    }
    if (duration_ < 0) return;
    const bool op = category_ == "cpu_op", annotation = category_ == "user_annotation";
    const bool module = category_ == "python_function" && name_.starts_with("nn.Module: ");
    if (!op && !annotation && !module) return;
    const std::string text = printable(module ? name_.substr(11) : name_, 120);
    const auto [it, added] = ids_.try_emplace(text, static_cast<uint32_t>(out.names.size()));
    if (added) out.names.push_back(text);
    out.spans.push_back({event_.time, event_.time + duration_, event_.thread, it->second,
                         op       ? Span::Kind::op
                         : module ? Span::Kind::module
                                  : Span::Kind::annotation});
  }

  int depth_ = 0, event_depth_ = 3;
  bool in_events_ = false;
  std::string key_, name_, category_;
  double duration_ = -1;
  MemoryEvent event_;
  std::unordered_map<std::string, uint32_t> ids_;
};

// Memory events in order of time, each with the spans around it on its thread.
class Replay {
 public:
  explicit Replay(Collected& all) : all_(all) {
    std::stable_sort(all.memory.begin(), all.memory.end(), [](const MemoryEvent& a, const MemoryEvent& b) { return a.time < b.time; });
    std::stable_sort(all.spans.begin(), all.spans.end(),
                     [](const Span& a, const Span& b) { return std::pair(a.begin, -a.end) < std::pair(b.begin, -b.end); });
  }

  std::vector<ProfiledDevice> run() {
    size_t next = 0;
    for (const MemoryEvent& e : all_.memory) {
      for (; next < all_.spans.size() && all_.spans[next].begin <= e.time; ++next) open(all_.spans[next]);
      device(e).add(e, around(e));
    }
    std::vector<ProfiledDevice> out;
    for (auto& [key, d] : devices_) out.push_back(std::move(d.out));
    std::stable_sort(out.begin(), out.end(), [](const ProfiledDevice& a, const ProfiledDevice& b) {
      return std::pair(a.name != "cpu", a.peak) > std::pair(b.name != "cpu", b.peak);
    });
    return out;
  }

 private:
  struct Around {
    const std::string* op = nullptr;
    std::vector<const std::string*> modules;
    Phase phase = Phase::forward;
    const std::string* step = nullptr;  // of the profiler
  };

  struct Device {
    ProfiledDevice out;
    LevelTrace before{out.trace};
    std::unordered_map<int64_t, StorageId> live;
    std::map<std::pair<ScopeId, std::string>, ScopeId> scopes;
    const std::string* step = nullptr;
    Phase phase = Phase::setup;

    void add(const MemoryEvent& e, const Around& a) {
      if (out.events++ == 0) begin(e);
      if (a.step != step && a.step) out.trace.events.push_back({Event::Kind::step, 0, 0});
      step = a.step;
      if (a.phase != phase) out.trace.events.push_back({Event::Kind::phase, static_cast<uint8_t>(a.phase), 0});
      phase = a.phase;
      e.bytes > 0 ? allocate(e, a) : free(e);
      out.peak = std::max(out.peak, e.allocated);
      out.reserved_peak = std::max(out.reserved_peak, e.reserved);
      out.reserved.resize(out.trace.events.size(), e.reserved);
    }

    // What was there before has no address that is known; it is one amount.
    void begin(const MemoryEvent& e) {
      out.before = std::max<int64_t>(0, e.allocated - e.bytes);
      StorageRecord s;
      s.op = out.trace.intern("allocated before the profile");
      s.phase = Phase::setup;
      if (out.before > 0) before.grow(Category::workspace, out.before, s);
      out.trace.events.push_back({Event::Kind::step, 0, 0});
    }

    void allocate(const MemoryEvent& e, const Around& a) {
      StorageRecord s;
      s.bytes = e.bytes;
      s.op = out.trace.intern(a.op ? *a.op : "no op");
      s.phase = a.phase;
      s.born_as = a.phase == Phase::backward    ? Category::backward
                  : a.phase == Phase::optimizer ? Category::optimizer
                                                : Category::activation;
      static const std::string kNoModule = "[no module]";
      const std::vector<const std::string*> nowhere{&kNoModule};
      for (const std::string* m : a.modules.empty() ? nowhere : a.modules) {
        const auto [it, added] = scopes.try_emplace({s.scope, *m}, 0);
        if (added) it->second = out.trace.add_scope(s.scope, *m);
        s.scope = it->second;
      }
      const auto id = static_cast<StorageId>(out.trace.storages.size());
      if (const auto old = live.find(e.address); old != live.end()) {  // its free was not recorded
        out.trace.events.push_back({Event::Kind::free, 0, old->second});
        live.erase(old);
      }
      out.trace.storages.push_back(s);
      out.trace.events.push_back({Event::Kind::alloc, 0, id});
      live[e.address] = id;
    }

    void free(const MemoryEvent& e) {
      const auto it = live.find(e.address);
      if (it == live.end()) {
        before.shrink(Category::workspace, -e.bytes);
        return;
      }
      out.trace.events.push_back({Event::Kind::free, 0, it->second});
      live.erase(it);
    }
  };

  Device& device(const MemoryEvent& e) {
    Device& d = devices_[{e.device_type, e.device_type == 0 ? 0 : e.device}];
    if (d.out.name.empty())
      d.out.name = e.device_type == 0 ? "cpu" : fmt::format("{}:{}", e.device_type == kGpu ? "cuda" : "device", e.device);
    return d;
  }

  void open(const Span& s) {
    std::vector<Span>& stack = stacks_[s.thread];
    while (!stack.empty() && stack.back().end <= s.begin) stack.pop_back();
    stack.push_back(s);
  }

  Around around(const MemoryEvent& e) {
    Around out;
    std::vector<Span>& stack = stacks_[e.thread];
    while (!stack.empty() && stack.back().end < e.time) stack.pop_back();
    for (const Span& s : stack) {
      if (s.end < e.time) continue;
      const std::string& name = all_.names[s.name];
      if (s.kind == Span::Kind::op) out.op = &name;
      if (s.kind == Span::Kind::module) out.modules.push_back(&name);
      if (name.starts_with("autograd::engine::evaluate_function")) out.phase = Phase::backward;
      if (name.starts_with("Optimizer.step")) out.phase = Phase::optimizer;
      if (s.kind == Span::Kind::annotation && name.starts_with("ProfilerStep")) out.step = &name;
    }
    return out;
  }

  Collected& all_;
  std::map<int64_t, std::vector<Span>> stacks_;  // by thread, outermost first
  std::map<std::pair<int, int>, Device> devices_;
};

}  // namespace

bool looks_like_profiler_trace(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || (text[first] != '{' && text[first] != '[')) return false;
  return text.substr(0, 1 << 16).find("\"traceEvents\"") != std::string_view::npos ||
         text.substr(0, 1 << 12).find("\"ph\"") != std::string_view::npos;
}

std::vector<ProfiledDevice> read_profiler_trace(std::string_view text, const std::string& name) {
  Collector collector;
  if (!Json::sax_parse(text, &collector))
    throw Error(fmt::format("[profile] {} is no JSON, or cut off, at byte {}", name, collector.error_at),
                "prof.export_chrome_trace(FILE) writes one");
  std::vector<ProfiledDevice> out = Replay(collector.out).run();
  if (out.empty()) throw Error(fmt::format("[profile] {} has no [memory] events", name), "record with profile(profile_memory=True)");
  return out;
}

}  // namespace plimsoll
