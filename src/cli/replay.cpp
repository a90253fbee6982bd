#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "allocator/replay_protocol.h"
#include "cli/command.h"
#include "job/config.h"
#include "report/snapshot_report.h"
#include "trace/trace_file.h"
#include "util/mapped_file.h"
#include "util/parse_bytes.h"
#include "util/text.h"

namespace plimsoll {

namespace {

struct Flags {
  std::string file;
  std::optional<std::string> alloc_conf;
  std::string device_memory, in_use, allocator = "cuda";
  std::optional<int> device;
  OutputFlags output;
};

// One line in, one line out; answers are written when the buffer is full and at the end.
ExitCode speak_protocol() {
  constexpr size_t kBuffer = 1 << 16;
  ProtocolSession session;
  std::string pending, out;
  const auto flush = [&] {
    std::fwrite(out.data(), 1, out.size(), stdout);
    out.clear();
  };
  std::array<char, kBuffer> chunk;
  try {
    while (const size_t n = std::fread(chunk.data(), 1, chunk.size(), stdin)) {
      pending.append(chunk.data(), n);
      size_t start = 0;
      for (size_t end; (end = pending.find('\n', start)) != std::string::npos; start = end + 1)
        session.feed(std::string_view(pending).substr(start, end - start), out);
      pending.erase(0, start);
      if (out.size() >= kBuffer) flush();
    }
    session.feed(pending, out);
  } catch (const Error&) {
    flush();
    throw;
  }
  flush();
  return ExitCode::ok;
}

[[noreturn]] void wrong_usage(const std::string& what, const std::string& hint) { throw Error("[replay] " + what, hint, ExitCode::usage); }

ReplayDevice device_of(const Flags& flags) {
  ReplayDevice device;
  if (!flags.device_memory.empty()) device.memory = parse_bytes(flags.device_memory, "--device-memory").count;
  if (!flags.in_use.empty()) device.in_use = parse_bytes(flags.in_use, "--in-use").count;
  if (device.memory && device.in_use > *device.memory)
    throw Error(fmt::format("[replay] {} bytes in use by others do not fit in a device of {} bytes", device.in_use, *device.memory),
                "--in-use is a part of --device-memory");
  return device;
}

template <class Text, class Document>
void print(const Flags& flags, Text text, Document document) {
  if (flags.output.json) {
    std::cout << dump(document(), 2) << "\n";
  } else {
    std::cout << text(Style::detect(flags.output.colour, flags.output.ascii));
  }
}

const TraceAllocator* other_allocator(const Flags& flags) {
  if (flags.allocator == "cuda") return nullptr;
  std::vector<std::string> names{"cuda"};
  for (const TraceAllocator& a : trace_allocators()) {
    names.emplace_back(a.name);
    if (flags.allocator != a.name) continue;
    if (!a.on_device && !(flags.device_memory.empty() && flags.in_use.empty()))
      wrong_usage(fmt::format("--allocator {} is on the host", a.name), "leave --device-memory and --in-use away");
    if (!a.has_settings && flags.alloc_conf)
      wrong_usage(fmt::format("--allocator {} does not read PYTORCH_CUDA_ALLOC_CONF", a.name), "leave --alloc-conf away");
    return &a;
  }
  wrong_usage(fmt::format("no allocator is called '{}'", flags.allocator), did_you_mean(flags.allocator, names));
}

ExitCode replay_trace(const Flags& flags, const Trace& trace) {
  const std::string conf = flags.alloc_conf.value_or("");
  const ReplayDevice device = device_of(flags);
  if (const TraceAllocator* other = other_allocator(flags)) {
    const AllocatorFigures f = other->run(trace, {parse_alloc_conf(conf), device.memory, device.in_use});
    print(
        flags, [&](const Style& s) { return figures_text(trace, *other, f, s); }, [&] { return figures_json(trace, *other, f, device); });
    return f.oom_event ? ExitCode::no : ExitCode::ok;
  }
  const CudaTimeline t = cuda_timeline(trace, parse_alloc_conf(conf), device.cuda());
  print(
      flags, [&](const Style& s) { return timeline_text(trace, t, conf, device, s); },
      [&] { return timeline_json(trace, t, conf, device); });
  return t.oom ? ExitCode::no : ExitCode::ok;
}

Snapshot read_with_progress(std::string_view bytes, const std::string& name) {
  const bool show = isatty(STDERR_FILENO);
  const Pickle pickle = read_pickle(bytes, name, [&](size_t done, size_t total) {
    if (show) std::cerr << fmt::format("\rreading {}: {} %", name, done * 100 / total) << std::flush;
  });
  if (show) std::cerr << "\r\033[K" << std::flush;
  return read_snapshot(pickle, name);
}

std::string settings_name(const std::string& conf) { return conf.empty() ? "the default settings" : conf; }

// The recording itself; when others are asked for, they begin with the same blocks laid out anew, and so does a second
// replay of the recorded ones to compare with.
std::vector<ReplayColumn> replay_columns(const Flags& flags, const RecordedRun& run, const AllocConf& recorded, const CudaDevice& device) {
  std::vector<ReplayColumn> columns;
  const auto add = [&](const char* name, const std::string& explanation, const AllocConf& conf, ReplayStart start) {
    columns.push_back({name, explanation, alloc_conf_text(conf), start, replay_snapshot(run, conf, device, start)});
  };
  const std::string recorded_name = settings_name(alloc_conf_text(recorded));
  add("recorded", recorded_name + ", every block where it was", recorded, ReplayStart::as_recorded);
  if (!flags.alloc_conf) return columns;
  const AllocConf asked = parse_alloc_conf(*flags.alloc_conf);
  const bool hidden = !run.start.empty();
  if (hidden) add("afresh", recorded_name + ", what was in use at the start allocated anew", recorded, ReplayStart::afresh);
  add("asked", settings_name(alloc_conf_text(asked)) + (hidden ? ", the same start" : ""), asked, ReplayStart::afresh);
  return columns;
}

ExitCode show_snapshot(const Flags& flags, const Snapshot& snapshot) {
  const ReplayDevice device = device_of(flags);
  RecordedSettings settings = recorded_settings(snapshot);
  const RecordedRun run = recorded_run(snapshot, flags.device.value_or(busiest_device(snapshot)), settings.conf);
  if (flags.allocator != "cuda") return replay_trace(flags, trace_of(run));
  const CudaDevice cuda = device.cuda(run.limit ? run.limit->taken + device.in_use : kBoundlessDevice);
  const SnapshotReport report{snapshot, run, settings, device, replay_columns(flags, run, settings.conf, cuda)};
  print(
      flags, [&](const Style& s) { return snapshot_text(report, s); }, [&] { return snapshot_json(report); });
  return report.columns.back().replay.runs_out() ? ExitCode::no : ExitCode::ok;
}

ExitCode replay_file(const Flags& flags) {
  other_allocator(flags);
  const MappedFile file(flags.file);
  const std::string_view bytes = file.bytes();
  if (looks_like_pickle(bytes)) return show_snapshot(flags, read_with_progress(bytes, flags.file));
  if (bytes.starts_with("\x1f\x8b")) throw Error(fmt::format("[replay] {} is compressed with gzip", flags.file), "unpack it first: gunzip");
  if (bytes.starts_with("PK\x03\x04"))
    throw Error(fmt::format("[replay] {} is a zip archive, as torch.save writes", flags.file),
                "torch.cuda.memory._dump_snapshot(FILE) writes a snapshot");
  if (flags.device) wrong_usage("--device is for memory snapshots; a trace file has one device", "leave --device away");
  return replay_trace(flags, read_trace_text(bytes, flags.file));
}

}  // namespace

std::function<ExitCode()> set_up_replay(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.footer(
      "FILE is a PyTorch memory snapshot (torch.cuda.memory._dump_snapshot) or a trace file; its content decides.\n"
      "Examples:\n"
      "  plimsoll replay snap.pickle                                          what the allocator did, checked against the recording\n"
      "  plimsoll replay snap.pickle --alloc-conf expandable_segments:True    the same run under other settings, side by side\n"
      "  plimsoll replay snap.pickle --device-memory 24GiB --in-use 500MiB    would it have fit on that device?\n"
      "  plimsoll estimate gpt2 --save-trace run.trace\n"
      "  plimsoll replay run.trace --alloc-conf max_split_size_mb:128         a simulated step, or any trace\n"
      "  plimsoll replay run.trace --allocator bfc --device-memory 24GiB      what XLA's allocator would make of it\n"
      "  plimsoll replay < script.case                                        the line protocol (docs/replay.md)\n"
      "Without --alloc-conf a snapshot is replayed under the settings in it, a trace under the defaults. No code in a snapshot\n"
      "is ever run. GB means GiB. docs/replay.md explains every number, docs/trace-format.md the trace file.\n"
      "Exit codes: 0 done, 3 out of memory, 2 wrong usage, 5 input not understood, 1 a bug.");
  app.add_option("file", flags->file, "snapshot or trace file; without one, the line protocol on stdin and stdout")->type_name("FILE");
  app.add_option("--alloc-conf", flags->alloc_conf, "the text of PYTORCH_CUDA_ALLOC_CONF")->type_name("KEY:VALUE,...");
  app.add_option("--device-memory", flags->device_memory,
                 "memory of the device; without it the limit that a snapshot shows, if any, and else none")
      ->type_name("SIZE");
  app.add_option("--in-use", flags->in_use, "of the device's memory, in use by the context and by others")->type_name("SIZE");
  app.add_option("--device", flags->device, "of a snapshot, the device to look at (default: the one with the most events)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_option("--allocator", flags->allocator, "cuda (default), ideal, bfc (XLA) or pinned (host memory)")->type_name("NAME");
  flags->output.add_to(app);
  return [flags, &app] {
    if (!flags->file.empty()) return replay_file(*flags);
    const std::vector<CLI::Option*> options = app.get_options();
    if (std::any_of(options.begin(), options.end(), [](const CLI::Option* o) { return o->count() > 0; }))
      wrong_usage("flags need a trace file or a snapshot", "on stdin, the header names the device and the settings (docs/replay.md)");
    return speak_protocol();
  };
}

}  // namespace plimsoll
