#include "api/replay.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <climits>

#include "allocator/replay_protocol.h"
#include "job/settings.h"
#include "report/snapshot_report.h"
#include "trace/trace_file.h"
#include "util/mapped_file.h"
#include "util/parse_bytes.h"
#include "util/text.h"

namespace plimsoll {

namespace {

[[noreturn]] void wrong_usage(const std::string& what, const std::string& hint) { throw Error("[replay] " + what, hint, ExitCode::usage); }

ReplayDevice device_of(const ReplayRequest& request) {
  ReplayDevice device;
  if (!request.device_memory.empty()) device.memory = parse_bytes(request.device_memory, "--device-memory").count;
  if (!request.in_use.empty()) device.in_use = parse_bytes(request.in_use, "--in-use").count;
  if (device.memory && device.in_use > *device.memory)
    throw Error(fmt::format("[replay] {} bytes in use by others do not fit in a device of {} bytes", device.in_use, *device.memory),
                "--in-use is a part of --device-memory");
  return device;
}

const TraceAllocator* other_allocator(const ReplayRequest& request) {
  if (request.allocator == "cuda") return nullptr;
  std::vector<std::string> names{"cuda"};
  for (const TraceAllocator& a : trace_allocators()) {
    names.emplace_back(a.name);
    if (request.allocator != a.name) continue;
    if (!a.on_device && !(request.device_memory.empty() && request.in_use.empty()))
      wrong_usage(fmt::format("--allocator {} is on the host", a.name), "leave --device-memory and --in-use away");
    if (!a.has_settings && request.alloc_conf)
      wrong_usage(fmt::format("--allocator {} does not read PYTORCH_CUDA_ALLOC_CONF", a.name), "leave --alloc-conf away");
    return &a;
  }
  wrong_usage(fmt::format("no allocator is called '{}'", request.allocator), did_you_mean(request.allocator, names));
}

ExitCode show_trace(const ReplayRequest& request, const Trace& trace, const Show& show) {
  const std::string conf = request.alloc_conf.value_or("");
  const ReplayDevice device = device_of(request);
  if (const TraceAllocator* other = other_allocator(request)) {
    const AllocatorFigures f = other->run(trace, {parse_alloc_conf(conf), device.memory, device.in_use});
    show([&] { return figures_document(trace, *other, f); }, [&] { return figures_json(trace, *other, f, device); });
    return f.oom_event ? ExitCode::no : ExitCode::ok;
  }
  const CudaTimeline t = cuda_timeline(trace, parse_alloc_conf(conf), device.cuda());
  show([&] { return timeline_document(trace, t, conf, device); }, [&] { return timeline_json(trace, t, conf, device); });
  return t.oom ? ExitCode::no : ExitCode::ok;
}

// Like an estimate it never goes beyond what the capture knows.
Trace trace_at(const CapturedTrace& captured, const std::string& size) {
  if (size.empty()) return captured.program;
  Job sizes;
  apply_setting(sizes, "size", size, "--size");
  const std::vector<int64_t> values = captured.values(sizes.sizes);
  if (const std::vector<const CapturedCondition*> broken = captured.broken(values); !broken.empty())
    throw Error(fmt::format("[captured] {}: the program that was captured runs so only while {}", printable(broken[0]->where, 120),
                            printable(broken[0]->condition.text(), 120)),
                "capture it again at that size: plimsoll capture");
  return captured.evaluate(values);
}

std::string settings_name(const std::string& conf) { return conf.empty() ? "the default settings" : conf; }

// The recording itself; when others are asked for, they begin with the same blocks laid out anew, and so does a second
// replay of the recorded ones to compare with.
std::vector<ReplayColumn> replay_columns(const ReplayRequest& request, const RecordedRun& run, const AllocConf& recorded,
                                         const CudaDevice& device) {
  std::vector<ReplayColumn> columns;
  const auto add = [&](const char* name, const std::string& explanation, const AllocConf& conf, ReplayStart start) {
    columns.push_back({name, explanation, alloc_conf_text(conf), start, replay_snapshot(run, conf, device, start)});
  };
  const std::string recorded_name = settings_name(alloc_conf_text(recorded));
  add("recorded", recorded_name + ", every block where it was", recorded, ReplayStart::as_recorded);
  if (!request.alloc_conf) return columns;
  const AllocConf asked = parse_alloc_conf(*request.alloc_conf);
  const bool hidden = !run.start.empty();
  if (hidden) add("afresh", recorded_name + ", what was in use at the start allocated anew", recorded, ReplayStart::afresh);
  add("asked", settings_name(alloc_conf_text(asked)) + (hidden ? ", the same start" : ""), asked, ReplayStart::afresh);
  return columns;
}

ExitCode show_snapshot(const ReplayRequest& request, const Snapshot& snapshot, const Show& show) {
  const ReplayDevice device = device_of(request);
  RecordedSettings settings = recorded_settings(snapshot);
  const RecordedRun run = recorded_run(snapshot, request.device.value_or(busiest_device(snapshot)), settings.conf);
  if (request.allocator != "cuda") return show_trace(request, trace_of(run), show);
  const CudaDevice cuda = device.cuda(run.limit ? run.limit->taken + device.in_use : kBoundlessDevice);
  const SnapshotReport report{snapshot, run, settings, device, replay_columns(request, run, settings.conf, cuda)};
  show([&] { return snapshot_document(report); }, [&] { return snapshot_json(report); });
  return report.columns.back().replay.runs_out() ? ExitCode::no : ExitCode::ok;
}

}  // namespace

const Keys<ReplayRequest>& replay_keys() {
  using R = ReplayRequest;
  static const Keys<R> kKeys{
      {.key = "file", .member = &R::file, .value = "FILE", .help = "a memory snapshot or a trace file", .flag = false},
      {"alloc_conf", &R::alloc_conf, "KEY:VALUE,...", "the text of PYTORCH_CUDA_ALLOC_CONF"},
      {"device_memory", SizeText<R>{&R::device_memory}, "SIZE",
       "memory of the device; without it the limit that a snapshot shows, if any, and else none"},
      {"in_use", SizeText<R>{&R::in_use}, "SIZE", "of the device's memory, in use by the context and by others"},
      {"device", &R::device, "N", "of a snapshot, the device to look at (default: the one with the most events)", "", {0, INT_MAX}},
      {"size", &R::size, "NAME=N,...", "of a captured trace, its sizes (default: as captured)"},
      {"allocator", &R::allocator, "NAME", "cuda (default), ideal, bfc (XLA) or pinned (host memory)"}};
  return kKeys;
}

std::vector<RequestKey> replay_request_keys() {
  std::vector<RequestKey> keys = described(replay_keys());
  keys.front().required = true;
  return keys;
}

ReplayRequest replay_request(const nlohmann::json& request) {
  const Config fields = request_of(request, replay_request_keys());
  ReplayRequest out;
  read_keys(fields, replay_keys(), out);
  return out;
}

ExitCode answer(const ReplayRequest& request, const Show& show) {
  if (request.file.empty()) wrong_usage("no file is named", "\"file\" is a memory snapshot or a trace file");
  if (request.device && *request.device < 0)
    throw Error(fmt::format("[replay] device {} is not the number of a device", *request.device), "the first one is 0");
  other_allocator(request);
  const MappedFile file(request.file);
  const std::string_view bytes = file.bytes();
  if (!request.size.empty() && !looks_like_trace(bytes)) wrong_usage("--size is for captured traces", "leave it away");
  if (looks_like_pickle(bytes)) {
    const auto progress = [&](size_t done, size_t total) {
      file.let_go(done);
      if (show.progress && !show.progress(done, total, "bytes read")) throw Cancelled{};
    };
    return show_snapshot(request, read_snapshot(bytes, request.file, progress), show);
  }
  if (bytes.starts_with("\x1f\x8b"))
    throw Error(fmt::format("[replay] {} is compressed with gzip", request.file), "unpack it first: gunzip");
  if (bytes.starts_with("PK\x03\x04"))
    throw Error(fmt::format("[replay] {} is a zip archive, as torch.save writes", request.file),
                "torch.cuda.memory._dump_snapshot(FILE) writes a snapshot");
  if (request.device) wrong_usage("--device is for memory snapshots; a trace file has one device", "leave --device away");
  return show_trace(request, trace_at(read_captured_trace_text(bytes, request.file), request.size), show);
}

}  // namespace plimsoll
