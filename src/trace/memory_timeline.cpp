#include "trace/memory_timeline.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trace/level_trace.h"
#include "util/error.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// _CATEGORY_TO_INDEX of torch/profiler/_memory_profiler.py.
constexpr Category kOrder[] = {Category::parameter,  Category::optimizer_state, Category::input,    Category::optimizer,
                               Category::activation, Category::gradient,        Category::backward, Category::workspace};
constexpr size_t kColumns = std::size(kOrder);
constexpr int64_t kMost = int64_t{1} << 50;  // bytes: beyond any device

class TimelineReader {
 public:
  TimelineReader(const Json& json, const std::string& name) : json_(json), name_(name) {}

  Trace read() {
    if (!json_.is_array() || json_.empty()) refuse("not a list");
    trace_.events.push_back({Event::Kind::step, 0, 0});
    const bool levels = json_.size() == 2 && json_[0].is_array() && json_[1].is_array() && (json_[1].empty() || json_[1][0].is_array());
    levels ? read_levels(json_[0], json_[1]) : read_events();
    return std::move(trace_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(fmt::format("[timeline] {}: {}", name_, what), "prof.export_memory_timeline(FILE, device) of torch.profiler writes one");
  }

  int64_t number(const Json& row, size_t at, int64_t least, int64_t most, size_t line) const {
    if (!row.is_array() || at >= row.size() || !row[at].is_number_integer() ||
        (row[at].is_number_unsigned() && row[at].get<uint64_t>() > INT64_MAX) || row[at].get<int64_t>() < least ||
        row[at].get<int64_t>() > most)
      refuse(fmt::format("row {}: no whole number from {} to {} in place {}", line, least, most, at));
    return row[at].get<int64_t>();
  }

  // Each row: a nought for the plot, then one amount for each category.
  void read_levels(const Json& times, const Json& sizes) {
    if (times.size() != sizes.size()) refuse(fmt::format("{} times and {} rows of sizes", times.size(), sizes.size()));
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (!sizes[i].is_array() || sizes[i].size() != kColumns + 1) refuse(fmt::format("row {} has not {} sizes", i, kColumns + 1));
      for (const bool growing : {false, true})
        for (size_t c = 0; c < kColumns; ++c) {
          // Before its beginning the profiler misses some allocations, so that an amount can fall below nought.
          const int64_t change = std::max<int64_t>(0, number(sizes[i], c + 1, -kMost, kMost, i)) - level_.now(kOrder[c]);
          if (growing && change > 0) level_.grow(kOrder[c], change, {});
          if (!growing && change < 0) level_.shrink(kOrder[c], -change);
        }
    }
  }

  void read_events() {
    for (size_t i = 0; i < json_.size(); ++i) {
      number(json_[i], 1, 1, 4, i);
      const int64_t bytes = number(json_[i], 2, -kMost, kMost, i);
      const Category category = kOrder[number(json_[i], 3, 0, kColumns - 1, i)];
      if (bytes > 0) level_.grow(category, bytes, {});
      if (bytes < 0) level_.shrink(category, -bytes);
    }
  }

  const Json& json_;
  const std::string& name_;
  Trace trace_;
  LevelTrace level_{trace_};
};

}  // namespace

bool looks_like_memory_timeline(std::string_view text) {
  size_t at = text.find_first_not_of(" \t\r\n");
  for (int i = 0; i < 2; ++i) {
    if (at == std::string_view::npos || text[at] != '[') return false;
    at = text.find_first_not_of(" \t\r\n", at + 1);
  }
  return at != std::string_view::npos && (text[at] == '-' || (text[at] >= '0' && text[at] <= '9'));
}

Trace read_memory_timeline(std::string_view text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw Error(fmt::format("[timeline] {} is no JSON, or cut off", name), "write it again: export_memory_timeline");
  return TimelineReader(json, name).read();
}

}  // namespace plimsoll
