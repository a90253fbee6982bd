#include "report/replay_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/schema_versions.h"
#include "util/bytes.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

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

doc::Document timeline_document(const Trace& trace, const CudaTimeline& t, const std::string& conf, const ReplayDevice& device) {
  const CudaMoment& at = t.at_reserved_peak;
  doc::Text circumstances = fmt::format("{} events, {}, ", trace.events.size(), conf.empty() ? "default settings" : conf);
  circumstances += device.memory ? doc::Text("device of ") + Bytes{*device.memory} : doc::Text("no limit");
  doc::Document out{"PyTorch's caching allocator", circumstances};
  doc::Facts facts;
  const auto row = [&](const std::string& name, int64_t bytes, const doc::Text& note, int level = 0) {
    facts.facts.push_back({name, Bytes{bytes}, note, level});
  };
  row("allocated peak", t.allocated_peak, "torch.cuda.max_memory_allocated()");
  row("reserved peak", t.reserved_peak, "torch.cuda.max_memory_reserved()");
  row("fragmentation", at.fragmentation(),
      doc::Text("reserved but in no tensor at the reserved peak, ") + doc::Share{Bytes{at.fragmentation()}, Bytes{at.reserved}});
  row("not releasable", at.inactive_split, "of it, free pieces of segments in use", 1);
  row("rounding", at.rounding(), "of the allocated bytes, blocks larger than their tensors");
  facts.facts.push_back({"segments", doc::Count{at.segments}, "at the reserved peak"});
  facts.facts.push_back({"retries", doc::Count{t.retries}, "times the cache was emptied to make room"});
  for (size_t i = 0; i < t.steps.size(); ++i)
    row(fmt::format("step {}", i + 1), t.steps[i].allocated, doc::Text("reserved ") + Bytes{t.steps[i].reserved});
  out.blocks.emplace_back(std::move(facts));
  if (t.oom) {
    out.blocks.emplace_back(doc::Paragraph{doc::bad("does not fit") + ": " + failed_event(trace, t.oom->at_event)});
    out.blocks.emplace_back(doc::Paragraph{oom_message(t.oom->numbers)});
  }
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

doc::Document figures_document(const Trace& trace, const TraceAllocator& allocator, const AllocatorFigures& f) {
  doc::Document out{allocator.summary, fmt::format("{} events, {}", trace.events.size(), f.circumstances)};
  doc::Facts facts;
  for (const AllocatorFigure& figure : f.figures)
    facts.facts.push_back(
        {figure.name, figure.is_bytes ? doc::Text(Bytes{figure.value}) : doc::Text(doc::Count{figure.value}), figure.note});
  out.blocks.emplace_back(std::move(facts));
  if (f.oom_event) out.blocks.emplace_back(doc::Paragraph{doc::bad("does not fit") + ": " + failed_event(trace, *f.oom_event)});
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
