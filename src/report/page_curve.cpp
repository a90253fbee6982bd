#include "report/page_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "report/category_look.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

// What a curve is coloured by: categories, or who allocated.
class CurveGroups {
 public:
  CurveGroups(const Trace& trace, const MemoryCurve& curve, CurveColours colours) : by_place_(colours == CurveColours::places) {
    by_place_ ? choose_places(trace, curve) : choose_categories(curve, colours);
  }

  int of(const MemoryChange& c) const { return by_place_ ? place_[c.storage] : category_[static_cast<size_t>(c.category)]; }
  int of(StorageId storage, Category c) const { return by_place_ ? place_[storage] : category_[static_cast<size_t>(c)]; }
  const Json& json() const { return json_; }

 private:
  // In the order of the look, weights at the bottom; what people think of as one lies together.
  void choose_categories(const MemoryCurve& curve, CurveColours colours) {
    ByCategory seen{};
    for (const MemoryChange& c : curve.changes) ++seen[static_cast<size_t>(c.category)];
    category_.fill(-1);
    for (size_t group = 0; group < kCategoryGroups; ++group)
      for (size_t c = 0; c < kCategories; ++c)
        if (seen[c] > 0 && group_of(static_cast<Category>(c)) == static_cast<CategoryGroup>(group)) choose_category(c, colours);
  }

  void choose_category(size_t c, CurveColours colours) {
    const CategoryLook& look = look_of(group_of(static_cast<Category>(c)));
    category_[c] = static_cast<int>(json_.size());
    json_.push_back({{"name", curve_name(static_cast<Category>(c), colours)}, {"group", look.name}, {"colour", look.colour.hex}});
  }

  // Those with the most bytes at the peak.
  void choose_places(const Trace& trace, const MemoryCurve& curve) {
    std::map<NameId, int64_t> bytes;
    for (size_t i = 0; i < curve.peak; ++i) bytes[trace.storages[curve.changes[i].storage].op] += curve.changes[i].bytes;
    std::vector<std::pair<int64_t, NameId>> order;
    for (const auto& [op, b] : bytes) order.emplace_back(-b, op);
    std::sort(order.begin(), order.end());
    std::map<NameId, int> chosen;
    for (const auto& [b, op] : order) {
      if (chosen.size() == kPlaceColours || b == 0) break;
      chosen[op] = static_cast<int>(json_.size());
      add_place(trace.names[op], place_colour(chosen.size() - 1));
    }
    const int other = static_cast<int>(json_.size());
    const auto is_other = [&](const StorageRecord& s) { return !chosen.contains(s.op); };
    if (std::any_of(trace.storages.begin(), trace.storages.end(), is_other))
      add_place("other places", look_of(CategoryGroup::other).colour.hex);
    for (const StorageRecord& s : trace.storages) {
      const auto it = chosen.find(s.op);
      place_.push_back(it == chosen.end() ? other : it->second);
    }
  }

  void add_place(const std::string& name, const char* colour) { json_.push_back({{"name", name}, {"group", name}, {"colour", colour}}); }

  bool by_place_;
  Json json_ = Json::array();
  std::array<int, kCategories> category_{};
  std::vector<int> place_;
};

// Who allocated, each once: "transformer.h.3.mlp: addmm (8, 1024, 768) bfloat16".
class CurveLabels {
 public:
  CurveLabels(const Trace& trace, bool places) : trace_(trace), places_(places), label_(trace.storages.size(), -1) {}

  int of(StorageId id) {
    if (label_[id] >= 0) return label_[id];
    const StorageRecord& s = trace_.storages[id];
    const std::string& shape = trace_.names[id < trace_.shapes.size() ? trace_.shapes[id] : 0];
    std::string text = places_ ? "" : trace_.scope_path(s.scope);  // a place says where it is
    text += (text.empty() || s.op == 0 ? "" : ": ") + trace_.names[s.op] + (shape.empty() ? "" : " " + shape);
    const auto [it, added] = index_.try_emplace(std::move(text), static_cast<int>(json_.size()));
    if (added) json_.push_back(it->first);
    return label_[id] = it->second;
  }
  const Json& json() const { return json_; }

 private:
  const Trace& trace_;
  bool places_;
  std::vector<int> label_;
  std::map<std::string, int> index_;
  Json json_ = Json::array();
};

Json marks_json(const MemoryCurve& curve, const std::vector<std::string>& steps) {
  Json out = Json::array();
  size_t step = 0;
  for (const CurveMark& m : curve.marks) {
    const std::string name = !m.step               ? std::string(phase_name(m.phase))
                             : step < steps.size() ? steps[step]
                                                   : fmt::format("step {}", step + 1);
    step += m.step;
    out.push_back({{"at", m.at}, {"kind", m.step ? "step" : "phase"}, {"name", name}});
  }
  return out;
}

Json failures_json(const MemoryCurve& curve) {
  Json out = Json::array();
  for (const FailedAllocation& f : curve.failures) out.push_back({{"at", f.at}, {"bytes", f.bytes}, {"label", f.place}});
  return out;
}

Json timeline_of(const MemoryCurve& curve, const CurveGroups& groups, CurveLabels& labels, const std::vector<std::string>& steps) {
  Json group = Json::array(), bytes = Json::array(), label = Json::array(), reserved = Json::array();
  int64_t now = 0, most = 0;
  for (const MemoryChange& c : curve.changes) {
    group.push_back(groups.of(c));
    bytes.push_back(c.bytes);
    label.push_back(labels.of(c.storage));
    now += c.bytes;
    most = std::max(most, now);
  }
  for (const ReservedPoint& p : curve.reserved) {
    reserved.push_back(p.at);
    reserved.push_back(p.bytes);
  }
  return {{"groups", groups.json()},
          {"group", std::move(group)},
          {"bytes", std::move(bytes)},
          {"label", std::move(label)},
          {"marks", marks_json(curve, steps)},
          {"reserved", std::move(reserved)},
          {"begins_at", curve.begins},
          {"peak_at", curve.peak},
          {"peak_bytes", most},
          {"failures", failures_json(curve)}};
}

Json segments_of(const MemoryCurve& curve, const Trace& trace, const CurveGroups& groups, CurveLabels& labels) {
  if (curve.segments.empty()) return nullptr;
  std::map<StorageId, Category> category;
  for (size_t i = 0; i < curve.peak; ++i) category[curve.changes[i].storage] = curve.changes[i].category;
  int64_t reserved = 0, used = 0, largest = 0, holes = 0;
  Json list = Json::array();
  for (const PlacedSegment& s : curve.segments) {
    Json blocks = Json::array();  // size, group or -1, label
    bool any = false;
    for (const PlacedBlock& b : s.blocks) any |= b.used;
    for (const PlacedBlock& b : s.blocks) {
      blocks.push_back(b.size);
      blocks.push_back(b.used ? groups.of(b.storage, category[b.storage]) : -1);
      blocks.push_back(b.used ? labels.of(b.storage) : -1);
      used += b.used ? b.size : 0;
      if (!b.used) largest = std::max(largest, b.size);
      if (!b.used && any) holes += b.size;
    }
    reserved += s.size;
    list.push_back({{"size", s.size}, {"small", s.small}, {"blocks", std::move(blocks)}});
  }
  return {{"count", curve.segments.size()}, {"reserved_bytes", reserved},    {"used_bytes", used},
          {"free_bytes", reserved - used},  {"largest_free_bytes", largest}, {"free_in_used_segments_bytes", holes},
          {"list", std::move(list)}};
}

}  // namespace

// torch/profiler/_memory_profiler.py: its TEMPORARY is of any phase, and what it has no category for is "Unknown".
std::string curve_name(Category category, CurveColours colours) {
  if (colours == CurveColours::levels && category == Category::optimizer) return "temporary";
  if (colours == CurveColours::levels && category == Category::workspace) return "unknown";
  return std::string(category_name(category));
}

void add_curve(Json& page, const Trace& trace, const MemoryCurve& curve, CurveColours colours, const std::vector<std::string>& steps) {
  const CurveGroups groups(trace, curve, colours);
  CurveLabels labels(trace, colours == CurveColours::places);
  page["timeline"] = timeline_of(curve, groups, labels, steps);
  page["segments"] = segments_of(curve, trace, groups, labels);
  page["timeline"]["labels"] = labels.json();
}

}  // namespace plimsoll
