#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "allocator/cuda_timeline.h"
#include "allocator/replay_protocol.h"
#include "cli/command.h"
#include "report/style.h"
#include "trace/trace_file.h"
#include "util/bytes.h"
#include "util/parse_bytes.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string file;
  std::string alloc_conf, device_memory, in_use;
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

CudaDevice device_of(const Flags& flags) {
  CudaDevice device{kBoundlessDevice, 0, {}};
  if (!flags.device_memory.empty()) device.capacity = parse_bytes(flags.device_memory, "--device-memory").count;
  if (!flags.in_use.empty()) device.other = parse_bytes(flags.in_use, "--in-use").count;
  return device;
}

Json moment_json(const CudaMoment& m) {
  return {{"event", m.at_event},
          {"allocated_bytes", m.allocated},
          {"reserved_bytes", m.reserved},
          {"requested_bytes", m.requested},
          {"inactive_split_bytes", m.inactive_split},
          {"fragmentation_bytes", m.fragmentation()},
          {"segments", m.segments}};
}

Json oom_json(const Trace& trace, const CudaOom& oom) {
  const StorageRecord& s = trace.storages[oom.storage];
  return {{"event", oom.at_event},
          {"requested_bytes", s.bytes},
          {"module", trace.scope_path(s.scope)},
          {"op", trace.names[s.op]},
          {"tried_bytes", oom.numbers.tried},
          {"device_free_bytes", oom.numbers.device_free},
          {"allocated_bytes", oom.numbers.allocated},
          {"unallocated_bytes", oom.numbers.unallocated},
          {"message", oom_message(oom.numbers)}};
}

void print_json(const Flags& flags, const Trace& trace, const CudaTimeline& t) {
  Json j{{"schema", 1},
         {"command", "replay"},
         {"alloc_conf", flags.alloc_conf},
         {"device_memory_bytes", flags.device_memory.empty() ? Json(nullptr) : Json(device_of(flags).capacity)},
         {"in_use_bytes", device_of(flags).other},
         {"events", trace.events.size()},
         {"allocated_peak_bytes", t.allocated_peak},
         {"reserved_peak_bytes", t.reserved_peak},
         {"retries", t.retries},
         {"at_allocated_peak", moment_json(t.at_allocated_peak)},
         {"at_reserved_peak", moment_json(t.at_reserved_peak)},
         {"end", moment_json(t.end)},
         {"steps", Json::array()},
         {"out_of_memory", t.oom ? oom_json(trace, *t.oom) : Json(nullptr)}};
  for (const CudaStepPeak& s : t.steps) j["steps"].push_back({{"allocated_peak_bytes", s.allocated}, {"reserved_peak_bytes", s.reserved}});
  std::cout << j.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

void print_text(const Flags& flags, const Trace& trace, const CudaTimeline& t) {
  const Style style = Style::detect(flags.output.colour, flags.output.ascii);
  const auto row = [](const char* name, int64_t bytes, const std::string& note) {
    std::cout << fmt::format("  {:<22} {:>11}   {}\n", name, to_string(Bytes{bytes}), note);
  };
  const CudaMoment& at = t.at_reserved_peak;
  std::cout << style.bold("PyTorch's caching allocator")
            << fmt::format("  {} events, {}, {}\n", trace.events.size(), flags.alloc_conf.empty() ? "default settings" : flags.alloc_conf,
                           flags.device_memory.empty() ? "no limit" : "device of " + to_string(Bytes{device_of(flags).capacity}));
  row("allocated peak", t.allocated_peak, "torch.cuda.max_memory_allocated()");
  row("reserved peak", t.reserved_peak, "torch.cuda.max_memory_reserved()");
  row("fragmentation", at.fragmentation(),
      fmt::format("reserved but in no tensor at the reserved peak, {}", percent_of(Bytes{at.fragmentation()}, Bytes{at.reserved})));
  row("  not releasable", at.inactive_split, "of it, free pieces of segments in use");
  row("rounding", at.rounding(), "of the allocated bytes, blocks larger than their tensors");
  std::cout << fmt::format("  {:<22} {:>11}   at the reserved peak\n  {:<22} {:>11}   times the cache was emptied to make room\n",
                           "segments", at.segments, "retries", t.retries);
  for (size_t i = 0; i < t.steps.size(); ++i)
    std::cout << fmt::format("  {:<22} {:>11}   reserved {}\n", fmt::format("step {}", i + 1), to_string(Bytes{t.steps[i].allocated}),
                             to_string(Bytes{t.steps[i].reserved}));
  if (!t.oom) return;
  const StorageRecord& s = trace.storages[t.oom->storage];
  std::cout << style.red("does not fit")
            << fmt::format(": event {} ({}{}{}) asked for {}\n  {}\n", t.oom->at_event, phase_name(s.phase),
                           s.scope ? ", " + trace.scope_path(s.scope) : "", s.op ? ", " + trace.names[s.op] : "", to_string(Bytes{s.bytes}),
                           oom_message(t.oom->numbers));
}

}  // namespace

std::function<ExitCode()> set_up_replay(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.footer(
      "Examples:\n"
      "  plimsoll replay run.trace                                            what the allocator made of a trace\n"
      "  plimsoll replay run.trace --alloc-conf expandable_segments:True      the same under other settings\n"
      "  plimsoll replay run.trace --device-memory 24GiB --in-use 500MiB      on a device of that size\n"
      "  plimsoll replay < script.case                                        the line protocol (docs/replay.md)\n"
      "A trace file is described in docs/trace-format.md. GB means GiB.\n"
      "Exit codes: 0 done, 3 out of memory on that device, 2 wrong usage, 5 input not understood, 1 a bug.");
  app.add_option("file", flags->file, "trace file; without one, the line protocol on stdin and stdout")->type_name("FILE");
  app.add_option("--alloc-conf", flags->alloc_conf, "the text of PYTORCH_CUDA_ALLOC_CONF")->type_name("KEY:VALUE,...");
  app.add_option("--device-memory", flags->device_memory, "memory of the device; without it nothing ever runs out")->type_name("SIZE");
  app.add_option("--in-use", flags->in_use, "of the device's memory, in use by the context and by others")->type_name("SIZE");
  flags->output.add_to(app);
  return [flags] {
    if (flags->file.empty()) {
      if (!flags->alloc_conf.empty() || !flags->device_memory.empty() || !flags->in_use.empty() || flags->output.json)
        throw Error("[replay] flags need a trace file", "on stdin, the header names the device and the settings (docs/replay.md)",
                    ExitCode::usage);
      return speak_protocol();
    }
    const AllocConf conf = parse_alloc_conf(flags->alloc_conf);
    const CudaDevice device = device_of(*flags);
    const Trace trace = read_trace(flags->file);
    const CudaTimeline timeline = cuda_timeline(trace, conf, device);
    flags->output.json ? print_json(*flags, trace, timeline) : print_text(*flags, trace, timeline);
    return timeline.oom ? ExitCode::no : ExitCode::ok;
  };
}

}  // namespace plimsoll
