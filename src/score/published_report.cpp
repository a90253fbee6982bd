#include "score/published_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>

namespace plimsoll {

namespace {

using Ordered = nlohmann::ordered_json;

// By family, by kind, all, and all that are trusted most.
std::vector<PublishedSummary> summaries(const std::vector<PublishedScore>& scores) {
  std::map<std::string, std::vector<PublishedScore>> families, kinds;
  std::vector<PublishedScore> trusted;
  for (const PublishedScore& s : scores) {
    families[s.family].push_back(s);
    kinds[to_string(s.kind)].push_back(s);
    if (s.confidence >= 0.7) trusted.push_back(s);
  }
  std::vector<PublishedSummary> out;
  for (const auto& [name, rows] : families) out.push_back(summarise(name, rows));
  for (const auto& [name, rows] : kinds) out.push_back(summarise("kind: " + name, rows));
  out.push_back(summarise("confidence 0.7 and more", trusted));
  out.push_back(summarise("all", scores));
  return out;
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string precise(double share) { return fmt::format("{:.2f} %", 100 * share); }
std::string with_sign(double share) { return fmt::format("{:+.2f} %", 100 * share); }

// A row of cells for each summary; "-" where nothing was predicted.
std::vector<std::string> cells(const PublishedSummary& s) {
  const bool any = s.predicted > 0;
  auto known = [&](const std::string& text) { return any ? text : std::string("-"); };
  return {s.name,
          std::to_string(s.rows),
          std::to_string(s.predicted),
          known(precise(s.median)),
          known(with_sign(s.signed_median)),
          percent(s.within_5),
          percent(s.within_10),
          known(percent(s.below)),
          known(percent(s.above_high)),
          known(percent(s.inside))};
}

const std::vector<std::string> kHeadings{
    "rows of", "rows", "done", "median error", "signed", "in 5 %", "in 10 %", "under-predicted", "above the high", "in the interval"};

Ordered number(double value) { return std::isfinite(value) ? Ordered(value) : Ordered(nullptr); }

}  // namespace

std::string published_text(const std::vector<PublishedScore>& scores, bool every_row) {
  std::string out = fmt::format("{:<62} {:<16} {:>10} {:>10} {:>9} {:>21}  {}\n", "row", "kind", "measured", "predicted", "error",
                                "low to high, GiB", "");
  auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  int hidden = 0;
  for (const PublishedScore& s : scores) {
    const bool known = s.unsupported.empty();
    if (!every_row && (!known || std::abs(s.error()) <= 0.05)) {
      ++hidden;
      continue;
    }
    out += fmt::format("{:<62} {:<16} {:>10.3f} ", s.id.substr(0, 62), to_string(s.kind), gib(s.measured));
    out += known ? fmt::format("{:>10.3f} {:>9} {:>21}  {}\n", gib(s.predicted.bytes.count), with_sign(s.error()),
                               fmt::format("{:.3f} to {:.3f}", gib(s.predicted.low.count), gib(s.predicted.high.count)),
                               s.measured > s.predicted.high.count  ? "above the interval"
                               : s.measured < s.predicted.low.count ? "below the interval"
                                                                    : "")
                 : fmt::format("{:>10} {:>9} {:>21}  cannot: {}\n", "-", "-", "-", s.unsupported);
  }
  if (hidden > 0) out += fmt::format("({} rows within 5 % or not predicted are not listed; --all lists them)\n", hidden);
  out += "\n";
  for (const std::vector<std::string>& line : [&] {
         std::vector<std::vector<std::string>> lines{kHeadings};
         for (const PublishedSummary& s : summaries(scores)) lines.push_back(cells(s));
         return lines;
       }()) {
    out += fmt::format("{:<26}", line[0]);
    for (size_t i = 1; i < line.size(); ++i) out += fmt::format(" {:>{}}", line[i], std::max<size_t>(8, kHeadings[i].size()));
    out += "\n";
  }
  return out;
}

std::string published_markdown(const std::vector<PublishedScore>& scores) {
  auto row = [](const std::vector<std::string>& line) {
    std::string out = "|";
    for (const std::string& cell : line) out += " " + cell + " |";
    return out + "\n";
  };
  std::string out = row(kHeadings) + "|---|" + [] {
    std::string rule;
    for (size_t i = 1; i < kHeadings.size(); ++i) rule += "--:|";
    return rule;
  }() + "\n";
  for (const PublishedSummary& s : summaries(scores)) out += row(cells(s));
  std::string misses = row({"row", "kind", "measured", "predicted", "error"}) + "|---|---|--:|--:|--:|\n";
  std::map<std::string, int> reasons;
  for (const PublishedScore& s : scores) {
    if (!s.unsupported.empty()) {
      ++reasons[s.family + ": " + s.unsupported];
    } else if (std::abs(s.error()) > 0.05) {
      misses += row({s.id, to_string(s.kind), to_string(Bytes{s.measured}), to_string(s.predicted.bytes), with_sign(s.error())});
    }
  }
  out +=
      "\nRows more than 5 % off:\n\n" + misses + "\nRows that cannot be expressed:\n\n" + row({"family: reason", "rows"}) + "|---|--:|\n";
  for (const auto& [reason, count] : reasons) out += row({reason, std::to_string(count)});
  return out;
}

Ordered published_json(const std::vector<PublishedScore>& scores) {
  Ordered j{{"schema", 1}, {"command", "score"}, {"kind", "published"}, {"rows", Ordered::array()}, {"summary", Ordered::array()}};
  for (const PublishedScore& s : scores) {
    const bool known = s.unsupported.empty();
    Ordered row{
        {"id", s.id}, {"family", s.family}, {"kind", to_string(s.kind)}, {"confidence", s.confidence}, {"measured_bytes", s.measured}};
    row["predicted_bytes"] = known ? Ordered(s.predicted.bytes.count) : Ordered(nullptr);
    row["low_bytes"] = known ? Ordered(s.predicted.low.count) : Ordered(nullptr);
    row["high_bytes"] = known ? Ordered(s.predicted.high.count) : Ordered(nullptr);
    row["error"] = known ? number(s.error()) : Ordered(nullptr);
    row["unsupported"] = known ? Ordered(nullptr) : Ordered(s.unsupported);
    j["rows"].push_back(row);
  }
  for (const PublishedSummary& s : summaries(scores))
    j["summary"].push_back({{"name", s.name},
                            {"rows", s.rows},
                            {"predicted", s.predicted},
                            {"median_error", s.median},
                            {"signed_median_error", s.signed_median},
                            {"within_5_percent", s.within_5},
                            {"within_10_percent", s.within_10},
                            {"under_predicted", s.below},
                            {"above_high", s.above_high},
                            {"in_interval", s.inside}});
  return j;
}

}  // namespace plimsoll
