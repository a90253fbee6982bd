#include "report/replay_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/schema_versions.h"
#include "util/bytes.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string row(const char* name, int64_t bytes, const std::string& note) {
  return fmt::format("  {:<22} {:>11}{}{}\n", name, to_string(Bytes{bytes}), note.empty() ? "" : "   ", note);
}

std::string count_row(const std::string& name, int64_t count, const std::string& note) {
  return fmt::format("  {:<22} {:>11}{}{}\n", name, count, note.empty() ? "" : "   ", note);
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

// "event 12 (forward, model.layers.0, aten::mm) asked for 1.00 GiB"
std::string failed_event(const Trace& trace, int64_t event) {
  const StorageRecord& s = trace.storages[trace.events[static_cast<size_t>(event)].storage];
  return fmt::format("event {} ({}{}{}) asked for {}", event, phase_name(s.phase), s.scope ? ", " + trace.scope_path(s.scope) : "",
                     s.op ? ", " + trace.names[s.op] : "", to_string(Bytes{s.bytes}));
}

Json failed_event_json(const Trace& trace, int64_t event) {
  const StorageRecord& s = trace.storages[trace.events[static_cast<size_t>(event)].storage];
  return {{"event", event}, {"requested_bytes", s.bytes}, {"module", trace.scope_path(s.scope)}, {"op", trace.names[s.op]}};
}

Json oom_json(const Trace& trace, const CudaOom& oom) {
  Json j = failed_event_json(trace, oom.at_event);
  j.update({{"tried_bytes", oom.numbers.tried},
            {"device_free_bytes", oom.numbers.device_free},
            {"allocated_bytes", oom.numbers.allocated},
            {"unallocated_bytes", oom.numbers.unallocated},
            {"message", oom_message(oom.numbers)}});
  return j;
}

}  // namespace

std::string timeline_text(const Trace& trace, const CudaTimeline& t, const std::string& conf, const ReplayDevice& device,
                          const Style& style) {
  const CudaMoment& at = t.at_reserved_peak;
  std::string out = style.bold("PyTorch's caching allocator") +
                    fmt::format("  {} events, {}, {}\n", trace.events.size(), conf.empty() ? "default settings" : conf,
                                device.memory ? "device of " + to_string(Bytes{*device.memory}) : "no limit");
  out += row("allocated peak", t.allocated_peak, "torch.cuda.max_memory_allocated()");
  out += row("reserved peak", t.reserved_peak, "torch.cuda.max_memory_reserved()");
  out += row("fragmentation", at.fragmentation(),
             fmt::format("reserved but in no tensor at the reserved peak, {}", percent_of(Bytes{at.fragmentation()}, Bytes{at.reserved})));
  out += row("  not releasable", at.inactive_split, "of it, free pieces of segments in use");
  out += row("rounding", at.rounding(), "of the allocated bytes, blocks larger than their tensors");
  out += count_row("segments", at.segments, "at the reserved peak");
  out += count_row("retries", t.retries, "times the cache was emptied to make room");
  for (size_t i = 0; i < t.steps.size(); ++i)
    out += row(fmt::format("step {}", i + 1).c_str(), t.steps[i].allocated, "reserved " + to_string(Bytes{t.steps[i].reserved}));
  if (t.oom)
    out += style.red("does not fit") + fmt::format(": {}\n  {}\n", failed_event(trace, t.oom->at_event), oom_message(t.oom->numbers));
  return out;
}

Json timeline_json(const Trace& trace, const CudaTimeline& t, const std::string& conf, const ReplayDevice& device) {
  Json j{{"schema", kReplaySchema},
         {"command", "replay"},
         {"kind", "trace"},
         {"alloc_conf", conf},
         {"device_memory_bytes", device.memory ? Json(*device.memory) : Json(nullptr)},
         {"in_use_bytes", device.in_use},
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
  return j;
}

std::string figures_text(const Trace& trace, const TraceAllocator& allocator, const AllocatorFigures& f, const Style& style) {
  std::string out = style.bold(allocator.summary) + fmt::format("  {} events, {}\n", trace.events.size(), f.circumstances);
  for (const AllocatorFigure& figure : f.figures)
    out += figure.is_bytes ? row(figure.name, figure.value, figure.note) : count_row(figure.name, figure.value, figure.note);
  if (f.oom_event) out += style.red("does not fit") + fmt::format(": {}\n", failed_event(trace, *f.oom_event));
  return out;
}

Json figures_json(const Trace& trace, const TraceAllocator& allocator, const AllocatorFigures& f, const ReplayDevice& device) {
  Json j{{"schema", kReplaySchema},       {"command", "replay"},
         {"kind", allocator.name},        {"device_memory_bytes", device.memory ? Json(*device.memory) : Json(nullptr)},
         {"in_use_bytes", device.in_use}, {"events", trace.events.size()}};
  for (const AllocatorFigure& figure : f.figures) j[figure.key] = figure.value;
  j["out_of_memory"] = f.oom_event ? failed_event_json(trace, *f.oom_event) : Json(nullptr);
  return j;
}

}  // namespace plimsoll
