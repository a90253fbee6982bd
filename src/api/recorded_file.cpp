#include "api/recorded_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "allocator/memory_curve.h"
#include "report/run_report.h"
#include "report/schema_versions.h"
#include "report/story_report.h"
#include "trace/memory_timeline.h"
#include "trace/profiler_trace.h"
#include "trace/trace_file.h"
#include "util/gunzip.h"
#include "util/mapped_file.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

enum class FileKind : uint8_t { other, snapshot, trace, profile, timeline, stats };

FileKind kind_of(std::string_view bytes) {
  if (looks_like_pickle(bytes)) return FileKind::snapshot;
  if (looks_like_captured_trace(bytes)) return FileKind::other;  // a program to ask about, at any size
  if (looks_like_trace(bytes)) return FileKind::trace;
  if (looks_like_profiler_trace(bytes)) return FileKind::profile;
  if (looks_like_memory_timeline(bytes)) return FileKind::timeline;
  return looks_like_memory_stats(bytes) ? FileKind::stats : FileKind::other;
}

// The bytes of a file, unpacked when they are packed.
class Content {
 public:
  explicit Content(const std::string& path) : file_(path), bytes_(file_.bytes()) {
    if (!looks_like_gzip(bytes_)) return;
    unpacked_ = gunzip(bytes_, path);
    bytes_ = unpacked_;
  }
  std::string_view bytes() const { return bytes_; }
  void let_go(size_t n) const { file_.let_go(unpacked_.empty() ? n : 0); }

 private:
  MappedFile file_;
  std::string unpacked_;
  std::string_view bytes_;
};

std::string counted(size_t n, const char* what) { return fmt::format("{} {}", with_commas(static_cast<int64_t>(n)), what); }

// Where a trace has the most, whichever step that is in.
int64_t peak_event(const Trace& trace, int64_t& peak) {
  int64_t now = 0, at = -1;
  peak = 0;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.kind == Event::Kind::alloc) now += trace.storages[e.storage].bytes;
    if (e.kind == Event::Kind::free) now -= trace.storages[e.storage].bytes;
    if (now > peak) peak = now, at = static_cast<int64_t>(i);
  }
  return at;
}

Json trace_page(const Trace& trace, const std::string& title) {
  int64_t peak = 0;
  const int64_t at = peak_event(trace, peak);
  const CudaTimeline cuda = cuda_timeline(trace);
  RunPage page{.kind = "trace",
               .title = title,
               .subtitle = counted(trace.events.size(), "events, ") + counted(trace.storages.size(), "storages"),
               .state = "note",
               .sentence = {},
               .trace = trace,
               .curve = memory_curve(trace, at),
               .alive = alive_at(trace, at),
               .numbers = {},
               .tables = {},
               .notes = {}};
  page.sentence =
      fmt::format("The peak is {} allocated; the allocator reserves {}.", to_string(Bytes{peak}), to_string(Bytes{cuda.reserved_peak}));
  page.numbers = {{"tensors", peak}, {"allocated", cuda.allocated_peak}, {"reserved", cuda.reserved_peak}};
  page.notes = {"PyTorch's caching allocator with its default settings, on a device that never runs out of memory."};
  return page_json(page);
}

Json timeline_page(const Trace& trace, const std::string& title) {
  int64_t peak = 0;
  const int64_t at = peak_event(trace, peak);
  RunPage page{.kind = "timeline",
               .title = title,
               .subtitle = "memory timeline of torch.profiler",
               .state = "note",
               .sentence = {},
               .trace = trace,
               .curve = memory_curve(trace, at, {}, false),
               .alive = alive_at(trace, at),
               .colours = CurveColours::levels,
               .numbers = {{"tensors", peak}},
               .tables = {},
               .notes = {}};
  page.sentence = fmt::format("The peak is {}, by the profiler's categories.", to_string(Bytes{peak}));
  page.notes = {"The file has amounts per category, no tensors."};
  return page_json(page);
}

Json profile_page(const ProfiledDevice& d, const std::string& title) {
  int64_t peak = 0;
  const int64_t at = peak_event(d.trace, peak);
  RunPage page{.kind = "profile",
               .title = title,
               .subtitle = fmt::format("torch.profiler trace, {}, {}", d.name, counted(d.events, "[memory] events")),
               .state = "note",
               .sentence = {},
               .trace = d.trace,
               .curve = memory_curve(d.trace, at, {}, false),
               .alive = alive_at(d.trace, at),
               .numbers = {{"allocated", d.peak}},
               .tables = {},
               .notes = {}};
  size_t done = 0;
  for (size_t i = 0; i < d.trace.events.size(); ++i) {
    const Event::Kind kind = d.trace.events[i].kind;
    done += kind == Event::Kind::alloc || kind == Event::Kind::free;
    std::vector<ReservedPoint>& r = page.curve.reserved;
    if (i < d.reserved.size() && d.reserved[i] > 0 && (r.empty() || r.back().bytes != d.reserved[i])) r.push_back({done, d.reserved[i]});
  }
  const StorageRecord* last = at < 0 || d.trace.events[static_cast<size_t>(at)].kind != Event::Kind::alloc
                                  ? nullptr
                                  : &d.trace.storages[d.trace.events[static_cast<size_t>(at)].storage];
  page.sentence = fmt::format("The peak is {}{}.", to_string(Bytes{peak}),
                              last ? fmt::format(", in {}, {}", phase_name(last->phase), d.trace.names[last->op]) : "");
  if (d.reserved_peak > 0) page.numbers.emplace_back("reserved", d.reserved_peak);
  if (d.before > 0)
    page.notes.push_back(
        fmt::format("{} were allocated before the profile began: usually weights and optimizer state.", to_string(Bytes{d.before})));
  page.notes.push_back(
      "Categories are the phase that allocated: ops of the autograd engine are backward, Optimizer.step is the optimizer, the rest "
      "forward.");
  return page_json(page);
}

// "It ran out of memory once: 30.00 MiB asked for, 20.00 MiB allocated, limit 40.00 MiB."
std::string snapshot_sentence(const SnapshotStory& s) {
  if (s.run.ooms == 0 || s.curve.failures.empty())
    return fmt::format("The peak is {} allocated, {} reserved.", to_string(Bytes{s.replay.allocated_peak}),
                       to_string(Bytes{s.replay.reserved_peak}));
  const FailedAllocation& failed = s.curve.failures.front();
  std::string out = s.run.ooms == 1 ? "It ran out of memory" : fmt::format("It ran out of memory {} times, first", s.run.ooms);
  if (!failed.place.empty()) out += " in " + failed.place;
  out += fmt::format(": it asked for {}", to_string(Bytes{failed.bytes}));
  if (s.run.limit) out += fmt::format(" where PyTorch can have {}", to_string(Bytes{s.run.limit->taken}));
  return out + ".";
}

Json snapshot_page(const SnapshotStory& s, const std::string& title) {
  RunPage page{.kind = "snapshot",
               .title = title,
               .subtitle = fmt::format("PyTorch memory snapshot, device {}, {}", s.run.device, counted(s.run.entries, "entries")),
               .state = s.run.ooms > 0 ? "does not fit" : "note",
               .sentence = {},
               .trace = s.recorded.trace,
               .curve = s.curve,
               .alive = s.alive,
               .colours = CurveColours::places,
               .limit = s.run.limit ? std::optional(s.run.limit->taken) : std::nullopt,
               .numbers = {},
               .tables = story_tables(s),
               .notes = {}};
  constexpr size_t kMostMarks = 500;
  if (s.marks.at.size() <= kMostMarks)
    for (const size_t at : s.marks.at)
      if (at < s.recorded.event_of.size()) page.curve.marks.push_back({static_cast<size_t>(s.recorded.event_of[at]), true, Phase::setup});
  page.sentence = snapshot_sentence(s);
  page.numbers = {{"allocated", s.replay.allocated_peak},
                  {"reserved", s.replay.reserved_peak},
                  {"fragmentation", s.replay.at_reserved_peak.fragmentation()}};
  if (!s.run.from_the_beginning() && !s.run.nothing_recorded())
    page.notes.push_back(fmt::format("The recording starts mid-run with {} in use; what came before is reconstructed from the final state.",
                                     to_string(Bytes{s.run.start_allocated})));
  if (s.run.nothing_recorded()) page.notes.push_back("The file has no events: only the final state is known.");
  page.notes.push_back(s.replay.check.equal() ? "Replayed under the recorded settings, every allocation lies where it was recorded."
                                              : "The replay differs from the recording; take the other settings with care.");
  return page_json(page);
}

Snapshot snapshot_of(const Content& content, const RecordedFileRequest& request) {
  return read_snapshot(content.bytes(), request.file, [&](size_t done, size_t total) {
    content.let_go(done);
    if (request.progress && !request.progress(done, total, "bytes read")) throw Cancelled{};
  });
}

Json page_of(const Content& content, FileKind kind, const RecordedFileRequest& request) {
  const std::string title = fs::path(request.file).filename().string();
  switch (kind) {
    case FileKind::snapshot: return snapshot_page(snapshot_story(snapshot_of(content, request), request.device, request.marks), title);
    case FileKind::trace: return trace_page(read_trace_text(content.bytes(), request.file), title);
    case FileKind::profile: return profile_page(read_profiler_trace(content.bytes(), request.file).front(), title);
    case FileKind::timeline: return timeline_page(read_memory_timeline(content.bytes(), request.file), title);
    case FileKind::stats:
    case FileKind::other: break;
  }
  throw Error("[report] " + request.file + " has counters alone, which no page can be drawn from", "plimsoll explain " + request.file);
}

}  // namespace

bool is_recorded_file(const std::vector<std::string>& words) {
  std::error_code error;
  if (words.size() != 1 || !fs::is_regular_file(words[0], error)) return false;
  if (words[0].ends_with(".safetensors") || words[0].ends_with(".gguf")) return false;
  const MappedFile file(words[0]);
  const bool packed = looks_like_gzip(file.bytes());
  const bool known = kind_of(packed ? Content(words[0]).bytes() : file.bytes()) != FileKind::other;
  if (!known && (words[0].ends_with(".pickle") || words[0].ends_with(".pkl")))
    throw Error("[pickle] " + words[0] + " is no pickle of protocol 2 to 5",
                "write it with torch.cuda.memory._dump_snapshot(), or with pickle.dump(snapshot, file, protocol=4)");
  return known;
}

ExitCode answer(const RecordedFileRequest& request, const Show& show) {
  const Content content(request.file);
  const FileKind kind = kind_of(content.bytes());
  if (kind != FileKind::snapshot && (request.device || !request.marks.empty()))
    throw Error("[explain] --device and --marks are for memory snapshots", "leave them out", ExitCode::usage);
  if (kind == FileKind::stats) {
    const MemoryStats stats = read_memory_stats(content.bytes(), request.file);
    show([&] { return stats_document(stats); }, [&] { return stats_json(stats); });
  } else if (kind == FileKind::snapshot) {
    const Snapshot snapshot = snapshot_of(content, request);
    const SnapshotStory story = snapshot_story(snapshot, request.device, request.marks);
    show([&] { return story_document(snapshot, story); }, [&] { return story_json(snapshot, story); });
  } else {
    const Json page = page_of(content, kind, request);
    show([&] { return run_document(page); },
         [&] {
           Json out{{"schema", kExplainSchema}, {"command", "explain"}};
           for (const char* key : {"kind", "title", "subtitle", "verdict", "numbers", "tree", "assumptions"}) out[key] = page[key];
           return out;
         });
  }
  return ExitCode::ok;
}

Json recorded_page(const RecordedFileRequest& request) {
  const Content content(request.file);
  return page_of(content, kind_of(content.bytes()), request);
}

MeasuredMemory measured_file(const RecordedFileRequest& request) {
  const Content content(request.file);
  if (kind_of(content.bytes()) != FileKind::snapshot)
    throw Error("[report] " + request.file + " is no memory snapshot", "torch.cuda.memory._dump_snapshot() writes one", ExitCode::usage);
  const SnapshotStory story = snapshot_story(snapshot_of(content, request), request.device, request.marks);
  return {fs::path(request.file).filename().string(),
          {{"allocated", story.replay.allocated_peak}, {"reserved", story.run.reserved_peak}},
          slices_of(story.curve)};
}

}  // namespace plimsoll
