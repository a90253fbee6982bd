#include "report/story_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/schema_versions.h"
#include "report/sizes.h"
#include "report/snapshot_report.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kHolders = 12, kSegments = 16;
constexpr int kMapWidth = 56, kStoryBar = 16;

SnapshotReport replay_of(const Snapshot& snapshot, const SnapshotStory& s) {
  const std::string conf = alloc_conf_text(s.settings.conf);
  return {snapshot,
          s.run,
          s.settings,
          {},
          {{"recorded", (conf.empty() ? "the default settings" : conf) + ", every block where it was", conf, ReplayStart::as_recorded,
            s.replay}}};
}

int64_t sum_of(const std::vector<Holder>& holders) {
  int64_t out = 0;
  for (const Holder& h : holders) out += h.bytes;
  return out;
}

std::string holders_text(const std::vector<Holder>& holders, const char* title, const char* note, const Style& style) {
  if (holders.empty()) return "";
  std::string out = "\n" + style.bold(title) + style.dim(std::string("  ") + note) + "\n";
  const int64_t all = sum_of(holders);
  for (size_t i = 0; i < std::min(holders.size(), kHolders); ++i) {
    const Holder& h = holders[i];
    out += fmt::format("  {:>11} {:>7}  {} {}{}\n", size_text(h.bytes), percent_of(Bytes{h.bytes}, Bytes{all}),
                       style.bar(static_cast<double>(h.bytes) / static_cast<double>(std::max<int64_t>(all, 1)), kStoryBar), h.name,
                       style.dim(h.blocks > 1 ? fmt::format("  {} blocks", with_commas(h.blocks)) : ""));
  }
  if (holders.size() > kHolders) {
    int64_t rest = 0;
    for (size_t i = kHolders; i < holders.size(); ++i) rest += holders[i].bytes;
    out += fmt::format("  {:>11} {:>7}  {} [{} others]\n", size_text(rest), percent_of(Bytes{rest}, Bytes{all}),
                       std::string(kStoryBar, ' '), holders.size() - kHolders);
  }
  return out;
}

struct SegmentFigures {
  int64_t used = 0, hole = 0, holes = 0;
};

SegmentFigures figures_of(const PlacedSegment& s) {
  SegmentFigures f;
  for (const PlacedBlock& b : s.blocks) {
    if (b.used) {
      f.used += b.size;
    } else {
      f.hole = std::max(f.hole, b.size);
      ++f.holes;
    }
  }
  return f;
}

// Character by character what part of its bytes is used.
std::string strip(const PlacedSegment& s, const Style& style) {
  static constexpr const char* kFancy[] = {"·", "░", "▒", "▓", "█"};
  static constexpr const char* kPlain[] = {".", "-", "+", "x", "#"};
  std::string out;
  size_t block = 0;
  int64_t begin = 0;  // of that block
  for (int i = 0; i < kMapWidth; ++i) {
    const int64_t from = s.size / kMapWidth * i, to = i + 1 == kMapWidth ? s.size : s.size / kMapWidth * (i + 1);
    int64_t used = 0;
    while (block < s.blocks.size()) {
      const int64_t end = begin + s.blocks[block].size;
      if (s.blocks[block].used) used += std::max<int64_t>(0, std::min(end, to) - std::max(begin, from));
      if (end > to) break;
      begin = end;
      ++block;
    }
    const double share = to > from ? static_cast<double>(used) / static_cast<double>(to - from) : 0;
    const int level = share <= 0 ? 0 : share >= 1 ? 4 : 1 + std::min(2, static_cast<int>(share * 3));
    out += (style.unicode ? kFancy : kPlain)[level];
  }
  return out;
}

std::string map_text(const SnapshotStory& s, const Style& style) {
  if (s.final_segments.empty()) return "";
  int64_t held = 0, used = 0, hole = 0;
  for (const PlacedSegment& seg : s.final_segments) {
    const SegmentFigures f = figures_of(seg);
    held += seg.size;
    used += f.used;
    hole = std::max(hole, f.hole);
  }
  return "\n" + style.bold("Segments at the end") +
         style.dim(fmt::format("  {} of {}: {} in use, {} free, the largest hole {}; {} used, {} free", s.final_segments.size(),
                               size_text(held), size_text(used), size_text(held - used), size_text(hole), style.unicode ? "█" : "#",
                               style.unicode ? "·" : ".")) +
         "\n" + segment_map(s.final_segments, kSegments, style);
}

std::string leaks_text(const SnapshotStory& s, const Style& style) {
  if (s.run.nothing_recorded()) return "";
  std::string out = "\n" + style.bold("What grows from step to step");
  if (s.marks.at.size() < 3)
    return out +
           style.dim("  no steps were found; name them: --marks 120,4500,8800 (entries) or --marks train_step (an annotation, a place)") +
           "\n";
  out += style.dim(fmt::format("  {} marks: {}", s.marks.at.size(), s.marks.source)) + "\n";
  if (s.leaks.empty()) return out + "  nothing: no place has blocks alive at the end that were born step after step\n";
  for (const Leak& l : s.leaks)
    out += fmt::format("  {:>11} a step, {} in {} of {} steps, {} blocks   {}\n", size_text(l.bytes_per_step), size_text(l.bytes), l.steps,
                       s.marks.at.size() + 1, with_commas(l.blocks), l.place);
  return out;
}

std::string others_text(const SnapshotStory& s, const Style& style) {
  if (s.others.empty()) return "";
  std::string out = "\n" + style.bold("The same run under other settings") +
                    style.dim("  what was there at the start is laid out anew in all of them") + "\n";
  for (size_t i = 0; i < s.others.size(); ++i) {
    const OtherSettings& o = s.others[i];
    const int64_t change = o.reserved_peak - s.others[0].reserved_peak;
    out += fmt::format("  {:<36} {:>11} reserved  {:>14}  {} retries{}\n",
                       (o.conf.empty() ? "default settings" : o.conf) + (i == 0 ? " (as recorded)" : ""), size_text(o.reserved_peak),
                       i == 0 || change == 0 ? "" : fmt::format("{}{}", change > 0 ? "+" : "", size_text(change)), o.retries,
                       o.runs_out ? style.red("  runs out") : "");
  }
  return out;
}

Json holders_json(const std::vector<Holder>& holders) {
  Json out = Json::array();
  for (const Holder& h : holders) out.push_back({{"name", h.name}, {"bytes", h.bytes}, {"blocks", h.blocks}});
  return out;
}

Json segments_json(const std::vector<PlacedSegment>& segments) {
  Json out = Json::array();
  for (const PlacedSegment& s : segments) {
    const SegmentFigures f = figures_of(s);
    out.push_back({{"size_bytes", s.size},
                   {"pool", s.small ? "small" : "large"},
                   {"used_bytes", f.used},
                   {"holes", f.holes},
                   {"largest_hole_bytes", f.hole},
                   {"blocks", s.blocks.size()}});
  }
  return out;
}

}  // namespace

std::string segment_map(const std::vector<PlacedSegment>& segments, size_t most, const Style& style) {
  std::vector<std::pair<const PlacedSegment*, SegmentFigures>> rows;
  for (const PlacedSegment& s : segments) rows.emplace_back(&s, figures_of(s));
  // Holes of segments in use are what cannot be given back; then the size.
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    const auto lost = [](const auto& r) { return r.second.used > 0 ? r.first->size - r.second.used : int64_t{0}; };
    return std::pair(lost(a), a.first->size) > std::pair(lost(b), b.first->size);
  });
  std::string out;
  for (size_t i = 0; i < std::min(most, rows.size()); ++i) {
    const auto& [s, f] = rows[i];
    out +=
        fmt::format("  {:>11} {} {:>7} used{}\n", size_text(s->size), strip(*s, style), percent_of(Bytes{f.used}, Bytes{s->size}),
                    f.hole > 0 ? fmt::format(", {} {}, the largest {}", f.holes, f.holes == 1 ? "hole" : "holes", size_text(f.hole)) : "");
  }
  if (rows.size() > most) out += fmt::format("  [{} others]\n", rows.size() - most);
  return out;
}

std::string story_text(const Snapshot& snapshot, const SnapshotStory& s, const Style& style) {
  return snapshot_text(replay_of(snapshot, s), style) +
         holders_text(s.by_place, "Who holds memory at the peak", "the innermost frame outside of PyTorch that allocated it", style) +
         (s.by_file.size() > 1 ? holders_text(s.by_file, "By file", "or module", style) : "") + leaks_text(s, style) + map_text(s, style) +
         others_text(s, style);
}

Json story_json(const Snapshot& snapshot, const SnapshotStory& s) {
  Json j = snapshot_json(replay_of(snapshot, s));  // of the same kind
  j["schema"] = kExplainSchema;
  j["command"] = "explain";
  j["holders"] = holders_json(s.by_place);
  j["holders_by_file"] = holders_json(s.by_file);
  j["marks"] = {{"operations", s.marks.at}, {"source", s.marks.source}};
  j["leaks"] = Json::array();
  for (const Leak& l : s.leaks)
    j["leaks"].push_back(
        {{"place", l.place}, {"bytes", l.bytes}, {"blocks", l.blocks}, {"steps", l.steps}, {"bytes_per_step", l.bytes_per_step}});
  j["segments_at_end"] = segments_json(s.final_segments);
  j["other_settings"] = Json::array();
  for (const OtherSettings& o : s.others)
    j["other_settings"].push_back(
        {{"alloc_conf", o.conf}, {"reserved_peak_bytes", o.reserved_peak}, {"retries", o.retries}, {"runs_out", o.runs_out}});
  return j;
}

std::vector<PageTable> story_tables(const SnapshotStory& s) {
  std::vector<PageTable> out;
  const auto holders = [&](const char* title, const char* note, const std::vector<Holder>& all) {
    PageTable t{title, note, {"place", "size", "part", "blocks"}, {}};
    const int64_t sum = sum_of(all);
    for (size_t i = 0; i < std::min<size_t>(all.size(), 40); ++i)
      t.rows.push_back({all[i].name, size_text(all[i].bytes), percent_of(Bytes{all[i].bytes}, Bytes{sum}), with_commas(all[i].blocks)});
    out.push_back(std::move(t));
  };
  holders("Who holds memory at the peak", "The innermost frame outside of PyTorch that allocated it.", s.by_place);
  if (s.by_file.size() > 1) holders("By file", "The same, file by file.", s.by_file);
  if (!s.leaks.empty()) {
    PageTable t{"What grows from step to step",
                "Alive at the end, and born step after step. Steps: " + s.marks.source + ".",
                {"place", "a step", "in all", "steps", "blocks"},
                {}};
    for (const Leak& l : s.leaks)
      t.rows.push_back({l.place, size_text(l.bytes_per_step), size_text(l.bytes), std::to_string(l.steps), with_commas(l.blocks)});
    out.push_back(std::move(t));
  }
  if (!s.others.empty()) {
    PageTable t{"The same run under other settings",
                "What was there when the recording began is laid out anew in all of them.",
                {"PYTORCH_CUDA_ALLOC_CONF", "reserved peak", "retries", "runs out"},
                {}};
    for (const OtherSettings& o : s.others)
      t.rows.push_back(
          {o.conf.empty() ? "default" : o.conf, size_text(o.reserved_peak), std::to_string(o.retries), o.runs_out ? "yes" : "no"});
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace plimsoll
