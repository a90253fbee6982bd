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
constexpr int kMapWidth = 56;

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

doc::Blocks holder_blocks(const std::vector<Holder>& holders, const char* title, const char* note) {
  using doc::Kind;
  if (holders.empty()) return {};
  const Bytes all{sum_of(holders)};
  doc::Table table{{{"size", Kind::size}, {"share", Kind::percent}, {"", Kind::bar}, {"blocks", Kind::number}, {"place"}}};
  const auto row = [&](Bytes bytes, const doc::Text& blocks, const std::string& name) {
    table.rows.push_back({{bytes, doc::Share{bytes, all}, doc::Share{bytes, all}, blocks, name}});
  };
  for (size_t i = 0; i < std::min(holders.size(), kHolders); ++i)
    row(Bytes{holders[i].bytes}, doc::Count{static_cast<int64_t>(holders[i].blocks)}, holders[i].name);
  if (holders.size() > kHolders) {
    int64_t rest = 0;
    for (size_t i = kHolders; i < holders.size(); ++i) rest += holders[i].bytes;
    row(Bytes{rest}, "", fmt::format("[{} others]", holders.size() - kHolders));
  }
  return {doc::Heading{title, note}, std::move(table)};
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
std::string strip(const PlacedSegment& s) {
  static constexpr const char* kMarks[] = {"·", "░", "▒", "▓", "█"};
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
    out += kMarks[share <= 0 ? 0 : share >= 1 ? 4 : 1 + std::min(2, static_cast<int>(share * 3))];
  }
  return out;
}

doc::Blocks map_blocks(const SnapshotStory& s) {
  if (s.final_segments.empty()) return {};
  int64_t held = 0, used = 0, hole = 0;
  for (const PlacedSegment& seg : s.final_segments) {
    const SegmentFigures f = figures_of(seg);
    held += seg.size;
    used += f.used;
    hole = std::max(hole, f.hole);
  }
  const doc::Text note = fmt::format("{} of ", s.final_segments.size()) + doc::Text(Bytes{held}) + ": " + Bytes{used} + " in use, " +
                         Bytes{held - used} + " free, the largest hole " + Bytes{hole} + "; █ used, · free";
  return {doc::Heading{"Segments at the end", note}, segment_map(s.final_segments, kSegments)};
}

doc::Blocks leak_blocks(const SnapshotStory& s) {
  using doc::Kind;
  if (s.run.nothing_recorded()) return {};
  const char* title = "What grows from step to step";
  if (s.marks.at.size() < 3)
    return {doc::Heading{title}, doc::Paragraph{"No steps were found; name them: --marks 120,4500,8800 (entries) or --marks train_step (an "
                                                "annotation, a place)."}};
  const doc::Heading heading{title, fmt::format("{} marks: {}", s.marks.at.size(), s.marks.source)};
  if (s.leaks.empty()) return {heading, doc::Paragraph{"Nothing: no place has blocks alive at the end that were born step after step."}};
  doc::Table table{{{"per step", Kind::size}, {"in all", Kind::size}, {"steps", Kind::number}, {"blocks", Kind::number}, {"place"}}};
  for (const Leak& l : s.leaks)
    table.rows.push_back({{Bytes{l.bytes_per_step}, Bytes{l.bytes}, fmt::format("{} of {}", l.steps, s.marks.at.size() + 1),
                           doc::Count{static_cast<int64_t>(l.blocks)}, l.place}});
  return {heading, std::move(table)};
}

doc::Blocks other_blocks(const SnapshotStory& s) {
  using doc::Kind;
  if (s.others.empty()) return {};
  doc::Table table{{{"settings"}, {"reserved", Kind::size}, {"change", Kind::size}, {"retries", Kind::number}, {""}}};
  for (const OtherSettings& o : s.others) {
    const bool recorded = &o == &s.others.front();
    const Bytes change{o.reserved_peak - s.others[0].reserved_peak};
    table.rows.push_back({{(o.conf.empty() ? "default settings" : o.conf) + (recorded ? " (as recorded)" : ""), Bytes{o.reserved_peak},
                           recorded || change.count == 0 ? doc::Text() : doc::Text(doc::Change{change}), doc::Count{o.retries},
                           o.runs_out ? doc::bad("runs out") : doc::Text()}});
  }
  return {doc::Heading{"The same run under other settings", "what was there at the start is laid out anew in all of them"},
          std::move(table)};
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

doc::Table segment_map(const std::vector<PlacedSegment>& segments, size_t most) {
  using doc::Kind;
  std::vector<std::pair<const PlacedSegment*, SegmentFigures>> rows;
  for (const PlacedSegment& s : segments) rows.emplace_back(&s, figures_of(s));
  // Holes of segments in use are what cannot be given back; then the size.
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    const auto lost = [](const auto& r) { return r.second.used > 0 ? r.first->size - r.second.used : int64_t{0}; };
    return std::pair(lost(a), a.first->size) > std::pair(lost(b), b.first->size);
  });
  doc::Table out{{{"size", Kind::size}, {""}, {"used", Kind::percent}, {""}}};
  for (size_t i = 0; i < std::min(most, rows.size()); ++i) {
    const auto& [s, f] = rows[i];
    doc::Text holes;
    if (f.hole > 0) holes = fmt::format("{} {}, the largest ", f.holes, f.holes == 1 ? "hole" : "holes") + doc::Text(Bytes{f.hole});
    out.rows.push_back({{Bytes{s->size}, strip(*s), doc::Share{Bytes{f.used}, Bytes{s->size}}, holes}});
  }
  if (rows.size() > most) out.rows.push_back({{"", fmt::format("[{} others]", rows.size() - most)}});
  return out;
}

doc::Document story_document(const Snapshot& snapshot, const SnapshotStory& s) {
  doc::Document out = snapshot_document(replay_of(snapshot, s));
  doc::append(out.blocks,
              holder_blocks(s.by_place, "Who holds memory at the peak", "the innermost frame outside of PyTorch that allocated it"));
  if (s.by_file.size() > 1) doc::append(out.blocks, holder_blocks(s.by_file, "By file", "or module"));
  for (const auto& part : {leak_blocks, map_blocks, other_blocks}) doc::append(out.blocks, part(s));
  return out;
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
