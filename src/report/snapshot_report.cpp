#include "report/snapshot_report.h"

#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "report/schema_versions.h"
#include "report/sizes.h"
#include "util/bytes.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

std::string plural(size_t n, const char* one, const char* many) {
  return fmt::format("{} {}", with_commas(static_cast<int64_t>(n)), n == 1 ? one : many);
}

std::string place_of(const SnapshotReport& r, uint32_t entry) {
  const SnapshotEntry& e = r.snapshot.traces[static_cast<size_t>(r.run.device)].entries[entry];
  return r.snapshot.places[r.snapshot.stacks[e.stack].place];
}

// Where in the user's program a moment was reached; "" when it was at the start or nothing is known.
std::string place_of(const SnapshotReport& r, const CudaMoment& m) {
  return m.at_event < 0 ? "" : place_of(r, r.run.operations[static_cast<size_t>(m.at_event)].entry);
}

std::string recording_text(const RecordedRun& run) {
  if (run.nothing_recorded()) return "no events: only the final state is known (torch.cuda.memory._record_memory_history() records them)";
  if (run.from_the_beginning()) return "begins with an empty allocator: nothing is hidden";
  size_t blocks = run.start_waiting.size();
  return fmt::format("starts mid-run: {} of {} were held and {} of {} in use; what came before is hidden",
                     plural(run.start.size(), "segment", "segments"), size_text(run.start_reserved), plural(blocks, "block", "blocks"),
                     size_text(run.start_allocated));
}

std::string memory_text(const SnapshotReport& r) {
  if (r.device.memory) return "device of " + size_text(*r.device.memory);
  if (!r.run.limit) return "no limit: nothing failed in the recording";
  const RecordedLimit& l = *r.run.limit;
  if (l.taken == l.most) return fmt::format("{}, what PyTorch could have when an allocation failed", size_text(l.taken));
  return fmt::format("{}: PyTorch held {} and could not have {}, so the limit is between", size_text(l.taken), size_text(l.least),
                     size_text(l.most));
}

std::string check_text(const ReplayCheck& c) {
  if (c.equal() && c.placements == 0)
    return fmt::format("the reserved bytes agree with the recording after all {}", plural(c.operations, "operation", "operations"));
  if (c.equal())
    return fmt::format("all {} lie where they were recorded; the reserved bytes agree after all {}",
                       plural(c.placements, "allocation", "allocations"), plural(c.operations, "operation", "operations"));
  return fmt::format("differs from the recording, first in entry {}: {} of {} lie where they were, the reserved bytes agree after {} of {}",
                     *c.first_difference, with_commas(static_cast<int64_t>(c.placements_equal)),
                     plural(c.placements, "allocation", "allocations"), with_commas(static_cast<int64_t>(c.reserved_equal)),
                     plural(c.operations, "operation", "operations"));
}

doc::Text recorded_text(const RecordedRun& run) {
  std::string out = fmt::format("device {}, {}", run.device, plural(run.entries, "entry", "entries"));
  if (run.microseconds >= 1000) out += fmt::format(" in {:.3f} s", static_cast<double>(run.microseconds) / 1e6);
  out += ", " + plural(static_cast<size_t>(run.streams), "stream", "streams");
  if (run.private_pools > 0) out += ", " + plural(static_cast<size_t>(run.private_pools), "private pool", "private pools");
  return out;
}

doc::Facts recording_facts(const SnapshotReport& r) {
  const RecordedRun& run = r.run;
  doc::Facts out;
  const auto line = [&](const char* name, const std::string& text) { out.facts.push_back({name, text}); };
  line("recording", recording_text(run));
  if (!r.settings.note.empty()) line("settings", r.settings.note);
  line("memory", memory_text(r));
  const ReplayColumn& first = r.columns.front();
  if (first.start == ReplayStart::as_recorded && first.replay.check.operations > 0 && !r.device.memory)
    line("check", check_text(first.replay.check));
  if (run.left_out > 0)
    line("left out", fmt::format("{} that do not fit the final state, the first is entry {}",
                                 with_commas(static_cast<int64_t>(run.left_out)), *run.first_left_out));
  if (run.unknown_actions > 0) line("not known", plural(run.unknown_actions, "action", "actions") + " of a later PyTorch, ignored");
  for (const ReplayColumn& c : r.columns) line(c.name, c.explanation);
  return out;
}

// A column for each replay.
doc::Table replays_table(const SnapshotReport& r) {
  doc::Table out{{{""}}};
  for (const ReplayColumn& c : r.columns) out.columns.push_back({c.name, doc::Kind::size});
  out.columns.push_back({""});
  const auto row = [&](const char* name, const std::function<doc::Text(const SnapshotReplay&)>& cell, const char* note) {
    doc::Row line{{name}};
    for (const ReplayColumn& c : r.columns) line.cells.push_back(cell(c.replay));
    line.cells.emplace_back(note);
    out.rows.push_back(std::move(line));
  };
  using R = const SnapshotReplay&;
  const auto size = [](int64_t bytes) { return doc::Text(Bytes{bytes}); };
  row(
      "allocated peak", [&](R t) { return size(t.allocated_peak); }, "torch.cuda.max_memory_allocated()");
  row(
      "reserved peak", [&](R t) { return size(t.reserved_peak); }, "torch.cuda.max_memory_reserved()");
  row(
      "fragmentation", [&](R t) { return size(t.at_reserved_peak.fragmentation()); }, "reserved but in no tensor, at the reserved peak");
  row(
      "",
      [](R t) {
        return doc::Text(doc::Share{Bytes{t.at_reserved_peak.fragmentation()}, Bytes{t.at_reserved_peak.reserved}});
      },
      "of the reserved bytes");
  row(
      "not releasable", [&](R t) { return size(t.at_reserved_peak.inactive_split); }, "of it, free pieces of segments in use");
  row(
      "rounding", [&](R t) { return size(t.at_reserved_peak.rounding()); }, "of the allocated bytes, blocks larger than their tensors");
  row(
      "segments", [](R t) { return doc::Text(doc::Count{t.at_reserved_peak.segments}); }, "at the reserved peak");
  row(
      "retries", [](R t) { return doc::Text(doc::Count{t.retries}); }, "times the cache was emptied to make room");
  if (r.run.ooms > 0)
    row(
        "out of memory", [&](R t) { return doc::Text(fmt::format("{} of {}", t.ooms_repeated, r.run.ooms)); },
        "failures of the recording that also fail here");
  row(
      "allocated at the end", [&](R t) { return t.oom ? doc::Text("-") : size(t.end.allocated); }, "");
  row(
      "reserved at the end", [&](R t) { return t.oom ? doc::Text("-") : size(t.end.reserved); }, "");
  return out;
}

doc::Blocks failure_blocks(const SnapshotReport& r, const ReplayColumn& c) {
  const ReplayOom& oom = *c.replay.oom;
  const doc::Text what = doc::bad("does not fit") + fmt::format(" ({}): ", c.name);
  if (!oom.entry) return {doc::Paragraph{what + "what was there when the recording began needs more than " + Bytes{oom.numbers.capacity}}};
  const std::string place = place_of(r, *oom.entry);
  return {
      doc::Paragraph{what + fmt::format("entry {}{} asked for ", *oom.entry, place.empty() ? "" : ", " + place + ",") + Bytes{oom.bytes}},
      doc::Paragraph{oom_message(oom.numbers, r.run.device)}};
}

doc::Paragraph repeated(const SnapshotReport& r, const ReplayColumn& c) {
  const uint32_t entry = *c.replay.first_repeated;
  const std::string place = place_of(r, entry);
  return {doc::bad("out of memory as recorded") +
          fmt::format(" ({}): entry {}{} asked for ", c.name, entry, place.empty() ? "" : ", " + place + ",") +
          Bytes{static_cast<int64_t>(r.snapshot.traces[static_cast<size_t>(r.run.device)].entries[entry].size)}};
}

// What the asked settings change, against the same start.
std::string effect_text(const SnapshotReport& r) {
  if (r.columns.size() < 2) return "";
  const ReplayColumn &asked = r.columns.back(), &base = r.columns[r.columns.size() - 2];
  if (asked.replay.oom || base.replay.oom) return "";
  std::string more;
  if (asked.replay.retries != base.replay.retries)
    more += fmt::format(", {} instead of {}", plural(static_cast<size_t>(asked.replay.retries), "retry", "retries"), base.replay.retries);
  if (asked.replay.ooms_repeated == 0 && base.replay.ooms_repeated > 0) more += ", and what failed in the recording does not fail";
  const int64_t change = asked.replay.reserved_peak - base.replay.reserved_peak;
  const std::string what = asked.conf.empty() ? "The default settings" : asked.conf;
  if (change == 0) return fmt::format("{}: the same reserved peak{}.", what, more);
  return fmt::format("{}: {} {} at the reserved peak ({}){}.", what, size_text(std::abs(change)), change < 0 ? "less" : "more",
                     percent_of(Bytes{std::abs(change)}, Bytes{base.replay.reserved_peak}), more);
}

// --- JSON

Json moment_json(const SnapshotReport& r, const CudaMoment& m) {
  const std::string place = place_of(r, m);
  return {{"entry", m.at_event < 0 ? Json(nullptr) : Json(r.run.operations[static_cast<size_t>(m.at_event)].entry)},
          {"place", place.empty() ? Json(nullptr) : Json(place)},
          {"allocated_bytes", m.allocated},
          {"reserved_bytes", m.reserved},
          {"requested_bytes", m.requested},
          {"inactive_split_bytes", m.inactive_split},
          {"fragmentation_bytes", m.fragmentation()},
          {"segments", m.segments}};
}

Json failure_json(const SnapshotReport& r, const ReplayOom& oom) {
  return {{"entry", oom.entry ? Json(*oom.entry) : Json(nullptr)},
          {"place", oom.entry ? Json(place_of(r, *oom.entry)) : Json(nullptr)},
          {"requested_bytes", oom.bytes},
          {"tried_bytes", oom.numbers.tried},
          {"device_free_bytes", oom.numbers.device_free},
          {"allocated_bytes", oom.numbers.allocated},
          {"unallocated_bytes", oom.numbers.unallocated},
          {"message", oom_message(oom.numbers, r.run.device)}};
}

Json column_json(const SnapshotReport& r, const ReplayColumn& c) {
  const SnapshotReplay& t = c.replay;
  Json j{{"name", c.name},
         {"alloc_conf", c.conf},
         {"start", c.start == ReplayStart::as_recorded ? "as recorded" : "afresh"},
         {"allocated_peak_bytes", t.allocated_peak},
         {"reserved_peak_bytes", t.reserved_peak},
         {"retries", t.retries},
         {"recorded_failures_repeated", t.ooms_repeated},
         {"recorded_failures_avoided", t.ooms_avoided},
         {"at_start", moment_json(r, t.start)},
         {"at_allocated_peak", moment_json(r, t.at_allocated_peak)},
         {"at_reserved_peak", moment_json(r, t.at_reserved_peak)},
         {"end", moment_json(r, t.end)},
         {"out_of_memory", t.oom ? failure_json(r, *t.oom) : Json(nullptr)}};
  if (c.start == ReplayStart::as_recorded)
    j["check"] = {{"equal", t.check.equal()},
                  {"allocations", t.check.placements},
                  {"allocations_equal", t.check.placements_equal},
                  {"operations", t.check.operations},
                  {"reserved_equal", t.check.reserved_equal},
                  {"first_difference_entry", t.check.first_difference ? Json(*t.check.first_difference) : Json(nullptr)}};
  return j;
}

}  // namespace

doc::Document snapshot_document(const SnapshotReport& r) {
  doc::Document out{"PyTorch memory snapshot", recorded_text(r.run)};
  out.blocks = {recording_facts(r), doc::Heading{"Replayed"}, replays_table(r)};
  const std::string place = place_of(r, r.columns.back().replay.at_reserved_peak);
  if (!place.empty())
    out.blocks.emplace_back(doc::Paragraph{fmt::format("The reserved peak{} is reached in {}.",
                                                       r.columns.size() > 1 ? fmt::format(" ({})", r.columns.back().name) : "", place)});
  if (const std::string effect = effect_text(r); !effect.empty()) out.blocks.emplace_back(doc::Paragraph{effect});
  for (const ReplayColumn& c : r.columns) {
    if (c.replay.oom) doc::append(out.blocks, failure_blocks(r, c));
    if (c.replay.first_repeated) out.blocks.emplace_back(repeated(r, c));
  }
  return out;
}

Json snapshot_json(const SnapshotReport& r) {
  const RecordedRun& run = r.run;
  Json limit;
  if (run.limit) limit = {{"least_bytes", run.limit->least}, {"most_bytes", run.limit->most}, {"taken_bytes", run.limit->taken}};
  Json j{{"schema", kReplaySchema},
         {"command", "replay"},
         {"kind", "snapshot"},
         {"device", run.device},
         {"devices", devices_of(r.snapshot)},
         {"device_memory_bytes", r.device.memory ? Json(*r.device.memory) : Json(nullptr)},
         {"in_use_bytes", r.device.in_use},
         {"recording",
          {{"entries", run.entries},
           {"microseconds", run.microseconds},
           {"streams", run.streams},
           {"private_pools", run.private_pools},
           {"nothing_recorded", run.nothing_recorded()},
           {"from_the_beginning", run.from_the_beginning()},
           {"start",
            {{"segments", run.start.size()},
             {"blocks", run.start_waiting.size()},
             {"allocated_bytes", run.start_allocated},
             {"reserved_bytes", run.start_reserved}}},
           {"end", {{"segments", run.end_segments}, {"allocated_bytes", run.end_allocated}, {"reserved_bytes", run.end_reserved}}},
           {"reserved_peak_bytes", run.reserved_peak},
           {"retries", run.retries},
           {"out_of_memory", run.ooms},
           {"empty_cache", run.empty_caches},
           {"limit", limit},
           {"left_out", run.left_out},
           {"unknown_actions", run.unknown_actions},
           {"alloc_conf", alloc_conf_text(r.settings.conf)},
           {"alloc_conf_note", r.settings.note.empty() ? Json(nullptr) : Json(r.settings.note)}}},
         {"replays", Json::array()}};
  for (const ReplayColumn& c : r.columns) j["replays"].push_back(column_json(r, c));
  return j;
}

}  // namespace plimsoll
