#include "trace/trace_file.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>

#include "trace/trace_reader.h"
#include "util/error.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;
constexpr uint32_t kNone = UINT32_MAX;
constexpr std::string_view kBegin = "{\"plimsoll_trace\"";

std::string json_text(std::string_view text) { return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace); }

// {"formula":3}, or the number.
std::string amount_text(const CapturedAmount& a) {
  return a.formula < 0 ? std::to_string(a.number) : fmt::format("{{\"formula\":{}}}", a.formula);
}

std::string scope_lines(const Trace& trace) {
  std::string out;
  for (size_t i = 1; i < trace.scopes.size(); ++i)
    out += fmt::format("{{\"scope\":{},\"parent\":{},\"name\":{}}}\n", i, trace.scopes[i].parent,
                       json_text(trace.names[trace.scopes[i].name]));
  return out;
}

// Everything of version 2 that comes before the events.
void write_head(const CapturedTrace& t, std::ostream& out) {
  out << fmt::format("{{\"plimsoll_trace\":2,\"torch\":{},\"script\":{}", json_text(t.torch), json_text(t.script));
  if (!t.device.empty()) out << fmt::format(",\"device\":{}", json_text(t.device));
  if (!t.command.empty()) out << ",\"command\":" << Json(t.command).dump(-1, ' ', false, Json::error_handler_t::replace);
  out << fmt::format(",\"steps\":{}}}\n", t.steps());
  for (const CapturedSymbol& s : t.symbols)
    out << fmt::format("{{\"symbol\":{},\"at\":{},\"min\":{},\"max\":{}}}\n", json_text(s.name), s.at, s.least, s.most);
  for (const CapturedCount& c : t.counts)
    out << fmt::format("{{\"count\":{},\"at\":{},\"most\":{},\"known\":{},\"where\":{}}}\n", json_text(c.name), c.at,
                       json_text(c.most.text()), c.known, json_text(c.where));
  for (size_t i = 0; i < t.formulas.size(); ++i)
    out << fmt::format("{{\"formula\":{},\"bytes\":{}}}\n", i, json_text(t.formulas[i].text()));
  for (const CapturedCondition& c : t.conditions)
    out << fmt::format("{{\"{}\":{},\"where\":{}}}\n", c.pin ? "pin" : "guard", json_text(c.condition.text()), json_text(c.where));
  for (const CapturedRead& r : t.reads)
    out << fmt::format("{{\"read\":{},\"dtype\":{},\"value\":{},\"known\":{}}}\n", json_text(r.where), json_text(r.dtype),
                       json_text(r.value), r.known);
  for (const CapturedNote& n : t.notes)
    out << fmt::format("{{\"{}\":{},\"where\":{}}}\n", n.skipped ? "skipped" : "note", json_text(n.text), json_text(n.where));
  for (const SymbolSizes& sizes : t.checked) out << fmt::format("{{\"checked\":{}}}\n", Json(sizes).dump());
}

void write_kernel(const CapturedTrace& t, const CapturedKernel& k, std::ostream& out) {
  out << fmt::format("{{\"work\":{},\"flops\":{},\"read\":{},\"written\":{},\"dtype\":{}}}\n", json_text(t.program.names[k.op]),
                     amount_text(k.flops), amount_text(k.read), amount_text(k.written), json_text(t.program.names[k.dtype]));
}

// Storages are numbered by their first allocation, as the reader expects. `captured`: whose formulas and kernels are written, too.
void write_events(const Trace& trace, const CapturedTrace* captured, std::ostream& out) {
  size_t kernel = 0, event = 0;
  const auto write_kernels = [&] {
    for (; captured && kernel < captured->kernels.size() && captured->kernels[kernel].event <= event; ++kernel)
      write_kernel(*captured, captured->kernels[kernel], out);
  };
  std::vector<uint32_t> id(trace.storages.size(), kNone);
  uint32_t count = 0;
  for (const Event& e : trace.events) {
    write_kernels();
    ++event;
    switch (e.kind) {
      case Event::Kind::alloc: {
        const StorageRecord& s = trace.storages[e.storage];
        id[e.storage] = count++;
        out << fmt::format("{{\"alloc\":{},\"bytes\":{},\"category\":\"{}\",\"phase\":\"{}\",\"op\":{},\"scope\":{}}}\n", id[e.storage],
                           amount_text({s.bytes, captured ? captured->formula_of(e.storage) : -1}), category_name(s.born_as),
                           phase_name(s.phase), json_text(trace.names[s.op]), s.scope);
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
  write_kernels();
}

void each_line(const std::string& path, const std::function<void(const std::string&)>& take) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw Error(fmt::format("[trace] {} is a directory", path), "name the trace file in it");
  std::ifstream in(path);
  if (!in) throw Error(fmt::format("[trace] cannot open {}", path), "is the path right?");
  for (std::string line; std::getline(in, line);) take(line);
}

}  // namespace

bool looks_like_trace(std::string_view text) { return text.starts_with(kBegin); }

bool looks_like_captured_trace(std::string_view text) {
  if (!looks_like_trace(text)) return false;
  const size_t version = text.find_first_not_of(" \t:", kBegin.size());
  return version != std::string_view::npos && text[version] != '1';
}

bool is_trace_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream in(path, std::ios::binary);
  std::array<char, kBegin.size()> begin{};
  in.read(begin.data(), begin.size());
  return looks_like_trace(std::string_view(begin.data(), static_cast<size_t>(in.gcount())));
}

void write_trace(const Trace& trace, std::ostream& out) {
  out << "{\"plimsoll_trace\":1}\n" << scope_lines(trace);
  write_events(trace, nullptr, out);
}

void write_trace(const Trace& trace, const std::string& path) {
  std::ofstream out(path);
  write_trace(trace, out);
  out.flush();
  if (!out) throw Error(fmt::format("[trace] cannot write {}", path), "is the folder there, and writable?");
}

void write_trace(const CapturedTrace& trace, std::ostream& out) {
  write_head(trace, out);
  out << scope_lines(trace.program);
  write_events(trace.program, &trace, out);
}

CapturedTrace read_captured_trace_text(std::string_view text, const std::string& name) {
  TraceReader reader(name);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    reader.feed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return reader.finish();
}

CapturedTrace read_captured_trace(const std::string& path) {
  TraceReader reader(path);
  each_line(path, [&](const std::string& line) { reader.feed(line); });
  CapturedTrace out = reader.finish();
  const std::string checks = path + ".checks";
  std::error_code error;
  if (!std::filesystem::is_regular_file(checks, error)) return out;
  int64_t number = 0;
  each_line(checks, [&](const std::string& line) {
    TraceLine l(checks, ++number);
    if (line.find_first_not_of(" \t\r") == std::string::npos) return;
    l.parse(line);
    out.checked.push_back(checked_sizes(l, out));
  });
  return out;
}

Trace read_trace_text(std::string_view text, const std::string& name) { return read_captured_trace_text(text, name).program; }

Trace read_trace(const std::string& path) { return read_captured_trace(path).program; }

}  // namespace plimsoll
