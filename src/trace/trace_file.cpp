#include "trace/trace_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>

#include "util/error.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;
constexpr int kVersion = 1;
constexpr uint32_t kNone = UINT32_MAX;

std::string json_text(std::string_view text) { return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace); }

class TraceReader {
 public:
  explicit TraceReader(std::string name) : name_(std::move(name)) {}

  void feed(std::string_view line) {
    ++line_;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    const Json j = Json::parse(line, nullptr, false);
    if (j.is_discarded() || !j.is_object()) refuse("not a JSON object");
    if (!started_) return start(j);
    if (j.contains("scope") && !j.contains("alloc")) return scope(j);
    if (j.contains("alloc")) return alloc(j);
    if (j.contains("free")) return free(j);
    if (j.contains("relabel")) return add(Event::Kind::relabel, category(j), living(j, "relabel"));
    if (j.contains("phase")) return add(Event::Kind::phase, phase(j), 0);
    if (j.contains("step")) return add(Event::Kind::step, 0, 0);
    refuse("no event in it");
  }

  Trace finish() {
    if (!started_) refuse("empty");
    return std::move(trace_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(fmt::format("[trace] {}:{}: {}", name_, line_, what), "docs/trace-format.md describes the lines");
  }

  int64_t integer(const Json& j, const char* key, int64_t most) const {
    const auto it = j.find(key);
    if (it == j.end()) refuse(fmt::format("no '{}'", key));
    if (!it->is_number_integer() || (it->is_number_unsigned() && it->get<uint64_t>() > static_cast<uint64_t>(most)) ||
        it->get<int64_t>() < 0 || it->get<int64_t>() > most)
      refuse(fmt::format("'{}' is {}, expected a whole number from 0 to {}", key, it->dump(-1, ' ', false, Json::error_handler_t::replace),
                         most));
    return it->get<int64_t>();
  }

  std::string text(const Json& j, const char* key) const {
    const auto it = j.find(key);
    if (it == j.end() || !it->is_string()) refuse(fmt::format("'{}' is not a text", key));
    return it->get<std::string>();
  }

  uint8_t category(const Json& j) const {
    const std::string name = text(j, "category");
    for (int c = 0; c < kCategories; ++c)
      if (category_name(static_cast<Category>(c)) == name) return static_cast<uint8_t>(c);
    refuse(fmt::format("unknown category '{}'", name));
  }

  uint8_t phase(const Json& j) const {
    const std::string name = text(j, "phase");
    for (int p = 0; p < kPhases; ++p)
      if (phase_name(static_cast<Phase>(p)) == name) return static_cast<uint8_t>(p);
    refuse(fmt::format("unknown phase '{}'", name));
  }

  void start(const Json& j) {
    if (!j.contains("plimsoll_trace")) refuse("the first line is not {\"plimsoll_trace\": 1}");
    if (integer(j, "plimsoll_trace", INT64_MAX) != kVersion)
      refuse(fmt::format("version {} of the format is not known", j["plimsoll_trace"].dump()));
    started_ = true;
  }

  void scope(const Json& j) {
    const auto most = static_cast<int64_t>(trace_.scopes.size());
    if (integer(j, "scope", most) != most) refuse(fmt::format("scope {} comes out of order, expected {}", j["scope"].dump(), most));
    trace_.add_scope(static_cast<ScopeId>(integer(j, "parent", most - 1)), text(j, "name"));
  }

  void alloc(const Json& j) {
    const auto id = static_cast<int64_t>(trace_.storages.size());
    if (integer(j, "alloc", kNone - 1) != id) refuse(fmt::format("storage {} comes out of order, expected {}", j["alloc"].dump(), id));
    StorageRecord s;
    s.bytes = integer(j, "bytes", (int64_t{1} << 60) - 1);  // PyTorch's own limit for one allocation
    if (j.contains("op")) s.op = trace_.intern(text(j, "op"));
    if (j.contains("scope")) s.scope = static_cast<ScopeId>(integer(j, "scope", static_cast<int64_t>(trace_.scopes.size()) - 1));
    if (j.contains("category")) s.born_as = static_cast<Category>(category(j));
    if (j.contains("phase")) s.phase = static_cast<Phase>(phase(j));
    trace_.storages.push_back(s);
    alive_.push_back(true);
    add(Event::Kind::alloc, 0, static_cast<StorageId>(id));
  }

  StorageId living(const Json& j, const char* key) const {
    const int64_t id = integer(j, key, kNone - 1);
    if (static_cast<size_t>(id) >= alive_.size() || !alive_[static_cast<size_t>(id)]) refuse(fmt::format("storage {} is not alive", id));
    return static_cast<StorageId>(id);
  }

  void free(const Json& j) {
    const StorageId id = living(j, "free");
    alive_[id] = false;
    add(Event::Kind::free, 0, id);
  }

  void add(Event::Kind kind, uint8_t value, StorageId storage) { trace_.events.push_back({kind, value, storage}); }

  std::string name_;
  int64_t line_ = 0;
  bool started_ = false;
  Trace trace_;
  std::vector<bool> alive_;
};

}  // namespace

// Storages are numbered by their first allocation, as the reader expects.
void write_trace(const Trace& trace, std::ostream& out) {
  out << fmt::format("{{\"plimsoll_trace\":{}}}\n", kVersion);
  for (size_t i = 1; i < trace.scopes.size(); ++i)
    out << fmt::format("{{\"scope\":{},\"parent\":{},\"name\":{}}}\n", i, trace.scopes[i].parent,
                       json_text(trace.names[trace.scopes[i].name]));
  std::vector<uint32_t> id(trace.storages.size(), kNone);
  uint32_t count = 0;
  for (const Event& e : trace.events) {
    switch (e.kind) {
      case Event::Kind::alloc: {
        const StorageRecord& s = trace.storages[e.storage];
        id[e.storage] = count++;
        out << fmt::format("{{\"alloc\":{},\"bytes\":{},\"category\":\"{}\",\"phase\":\"{}\",\"op\":{},\"scope\":{}}}\n", id[e.storage],
                           s.bytes, category_name(s.born_as), phase_name(s.phase), json_text(trace.names[s.op]), s.scope);
        break;
      }
      case Event::Kind::free: out << fmt::format("{{\"free\":{}}}\n", id[e.storage]); break;
      case Event::Kind::relabel:
        out << fmt::format("{{\"relabel\":{},\"category\":\"{}\"}}\n", id[e.storage], category_name(static_cast<Category>(e.value)));
        break;
      case Event::Kind::phase: out << fmt::format("{{\"phase\":\"{}\"}}\n", phase_name(static_cast<Phase>(e.value))); break;
      case Event::Kind::step: out << "{\"step\":true}\n"; break;
    }
  }
}

void write_trace(const Trace& trace, const std::string& path) {
  std::ofstream out(path);
  write_trace(trace, out);
  out.flush();
  if (!out) throw Error(fmt::format("[trace] cannot write {}", path), "is the folder there, and writable?");
}

Trace read_trace_text(std::string_view text, const std::string& name) {
  TraceReader reader(name);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    reader.feed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return reader.finish();
}

Trace read_trace(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw Error(fmt::format("[trace] {} is a directory", path), "name the trace file in it");
  std::ifstream in(path);
  if (!in) throw Error(fmt::format("[trace] cannot open {}", path), "is the path right?");
  TraceReader reader(path);
  for (std::string line; std::getline(in, line);) reader.feed(line);
  return reader.finish();
}

}  // namespace plimsoll
