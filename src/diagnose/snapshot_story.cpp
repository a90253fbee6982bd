#include "diagnose/snapshot_story.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Kind = RecordedOperation::Kind;

// What is worth asking: the settings that people are told to try.
constexpr const char* kWorthAsking[] = {"", "expandable_segments:True", "max_split_size_mb:128", "garbage_collection_threshold:0.8",
                                        "roundup_power2_divisions:8"};

std::vector<Holder> largest_first(const std::map<std::string, Holder>& holders) {
  std::vector<Holder> out;
  for (const auto& [name, h] : holders) out.push_back({name, h.bytes, h.blocks});
  std::stable_sort(out.begin(), out.end(), [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  return out;
}

// "forward (model.py:57)" is of model.py; a simulated "addmm (transformer.h.0)" of that module.
std::string file_of(const std::string& place) {
  const size_t open = place.rfind(" ("), close = place.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return place;
  const std::string inside = place.substr(open + 2, close - open - 2);
  const size_t colon = inside.rfind(':');
  return colon == std::string::npos ? inside : inside.substr(0, colon);
}

void add_holders(SnapshotStory& s) {
  std::map<std::string, Holder> places, files;
  const Trace& t = s.recorded.trace;
  for (const LiveStorage& l : s.alive) {
    const std::string& place = t.names[t.storages[l.id].op];
    for (Holder* h : {&places[place], &files[file_of(place)]}) {
      h->bytes += t.storages[l.id].bytes;
      ++h->blocks;
    }
  }
  s.by_place = largest_first(places);
  s.by_file = largest_first(files);
}

// --- marks

class Marking {
 public:
  Marking(const Snapshot& snapshot, const RecordedRun& run) : snapshot_(snapshot), run_(run) {
    static const std::vector<SnapshotEntry> kNone;
    const auto device = static_cast<size_t>(run.device);
    entries_ = device < snapshot.traces.size() ? &snapshot.traces[device].entries : &kNone;
  }

  StepMarks as_wished(const std::string& wish) const {
    std::vector<size_t> numbers;
    for (const std::string& part : split_at(wish, ',')) {
      size_t n = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
      if (error != std::errc{} || end != part.data() + part.size()) return by_text(wish);
      if (n >= entries_->size())
        throw Error(fmt::format("[explain] --marks {}: there are {} entries", n, entries_->size()), "entries count from 0");
      numbers.push_back(n);
    }
    std::sort(numbers.begin(), numbers.end());
    StepMarks out{{}, "as given"};
    for (const size_t entry : numbers) out.at.push_back(operation_at(entry));
    return out;
  }

  // The profiler's steps, or the program's own annotations of steps; else a place that allocates once in regular distances.
  StepMarks found() const {
    for (const char* word : {"ProfilerStep", "step"})
      if (StepMarks m = by_annotation(word); m.at.size() > 1) return m;
    return by_rhythm();
  }

 private:
  size_t operation_at(size_t entry) const {
    return static_cast<size_t>(std::lower_bound(run_.operations.begin(), run_.operations.end(), entry,
                                                [](const RecordedOperation& op, size_t e) { return op.entry < e; }) -
                               run_.operations.begin());
  }

  StepMarks by_annotation(const std::string& word) const {
    StepMarks out{{}, fmt::format("the annotation '{}'", word)};
    for (const SnapshotAnnotation& a : snapshot_.annotations) {
      if (!a.start || lower(a.name).find(lower(word)) == std::string::npos) continue;
      const auto at =
          std::lower_bound(entries_->begin(), entries_->end(), a.time, [](const SnapshotEntry& e, int64_t t) { return e.time < t; });
      out.at.push_back(operation_at(static_cast<size_t>(at - entries_->begin())));
    }
    std::sort(out.at.begin(), out.at.end());
    out.at.erase(std::unique(out.at.begin(), out.at.end()), out.at.end());
    return out;
  }

  StepMarks by_text(const std::string& wish) const {
    if (StepMarks m = by_annotation(wish); !m.at.empty()) return m;
    StepMarks out{{}, fmt::format("allocations in '{}'", printable(wish, 60))};
    for (size_t i = 0; i < run_.operations.size(); ++i) {
      if (run_.operations[i].kind != Kind::alloc) continue;
      const SnapshotStack& stack = snapshot_.stacks[(*entries_)[run_.operations[i].entry].stack];
      if (snapshot_.places[stack.place].find(wish) != std::string::npos) out.at.push_back(i);
    }
    if (out.at.empty())
      throw Error(fmt::format("[explain] --marks '{}' is in no annotation and no place", printable(wish, 60)),
                  "numbers of entries, or a part of a name: --marks 120,4500 or --marks train_step");
    return out;
  }

  // Of the stacks that allocate the same again and again in equal distances, the rarest is the step's own.
  StepMarks by_rhythm() const {
    constexpr size_t kFewest = 3, kMost = 10000;
    std::map<std::pair<uint32_t, int64_t>, std::vector<size_t>> beats;
    for (size_t i = 0; i < run_.operations.size(); ++i)
      if (run_.operations[i].kind == Kind::alloc)
        beats[{(*entries_)[run_.operations[i].entry].stack, run_.operations[i].bytes}].push_back(i);
    const std::vector<size_t>* best = nullptr;
    for (const auto& [key, at] : beats) {
      if (key.first == 0 || at.size() < kFewest || at.size() > kMost || !regular(at)) continue;
      if (!best || at.size() < best->size() || (at.size() == best->size() && at.front() < best->front())) best = &at;
    }
    return best ? StepMarks{*best, "an allocation that recurs in equal distances"} : StepMarks{};
  }

  static bool regular(const std::vector<size_t>& at) {
    size_t least = SIZE_MAX, most = 0;
    for (size_t i = 1; i < at.size(); ++i) {
      least = std::min(least, at[i] - at[i - 1]);
      most = std::max(most, at[i] - at[i - 1]);
    }
    return least > 3 && static_cast<double>(most) <= 1.1 * static_cast<double>(least) + 2;
  }

  const Snapshot& snapshot_;
  const RecordedRun& run_;
  const std::vector<SnapshotEntry>* entries_;
};

// What is alive at the end and was born in at least three steps, and in at least half of them; the last step's own tensors are not.
void find_leaks(SnapshotStory& s) {
  if (s.marks.at.size() < 3) return;
  std::vector<bool> freed(s.run.blocks);
  for (const RecordedOperation& op : s.run.operations)
    if (op.kind == Kind::free || op.kind == Kind::request_free) freed[op.block] = true;
  struct Group {
    int64_t bytes = 0, blocks = 0;
    std::map<size_t, int64_t> by_step;
  };
  std::map<std::string, Group> groups;
  const Trace& t = s.recorded.trace;
  for (size_t i = 0; i < s.run.operations.size(); ++i) {
    const RecordedOperation& op = s.run.operations[i];
    if (op.kind != Kind::alloc || freed[op.block]) continue;
    const auto step = static_cast<size_t>(std::upper_bound(s.marks.at.begin(), s.marks.at.end(), i) - s.marks.at.begin());
    Group& g = groups[t.names[t.storages[op.block].op]];
    g.bytes += op.bytes;
    ++g.blocks;
    g.by_step[step] += op.bytes;
  }
  const size_t steps = s.marks.at.size();
  for (const auto& [place, g] : groups) {
    if (g.by_step.size() < 3 || g.by_step.size() * 2 < steps) continue;
    std::vector<int64_t> each;
    for (const auto& [step, bytes] : g.by_step) each.push_back(bytes);
    std::nth_element(each.begin(), each.begin() + static_cast<long>(each.size() / 2), each.end());
    s.leaks.push_back({place, g.bytes, g.blocks, g.by_step.size(), each[each.size() / 2]});
  }
  std::stable_sort(s.leaks.begin(), s.leaks.end(), [](const Leak& a, const Leak& b) { return a.bytes > b.bytes; });
}

void ask_others(SnapshotStory& s, const CudaDevice& device) {
  if (s.run.nothing_recorded()) return;
  const std::string recorded = alloc_conf_text(s.settings.conf);
  const auto ask = [&](const std::string& conf) {
    const SnapshotReplay r = replay_snapshot(s.run, parse_alloc_conf(conf), device, ReplayStart::afresh);
    s.others.push_back({conf, r.reserved_peak, r.retries, r.runs_out()});
  };
  ask(recorded);
  for (const char* conf : kWorthAsking)
    if (conf != recorded) ask(conf);
}

}  // namespace

SnapshotStory snapshot_story(const Snapshot& snapshot, std::optional<int> device, const std::string& marks) {
  SnapshotStory s;
  s.settings = recorded_settings(snapshot);
  s.run = recorded_run(snapshot, device.value_or(busiest_device(snapshot)), s.settings.conf);
  s.recorded = recorded_trace(snapshot, s.run);
  const CudaDevice cuda{s.run.limit ? s.run.limit->taken : kBoundlessDevice, 0, {}};
  s.replay = replay_snapshot(s.run, s.settings.conf, cuda, ReplayStart::as_recorded);
  const int64_t peak = s.replay.at_allocated_peak.at_event;
  s.curve = recorded_curve(s.recorded, s.run, s.settings.conf, cuda, peak);
  s.alive = alive_at(s.recorded.trace, s.recorded.event_at(peak));
  add_holders(s);
  s.final_segments = layout_at(s.run, s.settings.conf, cuda, static_cast<int64_t>(s.run.operations.size()) - 1);
  const Marking marking(snapshot, s.run);
  s.marks = marks.empty() ? marking.found() : marking.as_wished(marks);
  find_leaks(s);
  ask_others(s, cuda);
  return s;
}

}  // namespace plimsoll
