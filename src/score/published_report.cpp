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

// "-" where nothing was predicted.
doc::Table summary_table(const std::vector<PublishedScore>& scores) {
  doc::Table out{{{"rows of"}}};
  for (const char* name :
       {"rows", "done", "median error", "signed", "in 5 %", "in 10 %", "under-predicted", "above the high", "in the interval"})
    out.columns.push_back({name, doc::Kind::number});
  for (const PublishedSummary& s : summaries(scores)) {
    const auto known = [&](const std::string& text) { return s.predicted > 0 ? text : std::string("-"); };
    out.rows.push_back(
        {{s.name, std::to_string(s.rows), std::to_string(s.predicted), known(precise(s.median)), known(with_sign(s.signed_median)),
          percent(s.within_5), percent(s.within_10), known(percent(s.below)), known(percent(s.above_high)), known(percent(s.inside))}});
  }
  return out;
}

const char* place_of(const PublishedScore& s) {
  return s.measured > s.predicted.high.count ? "above the interval" : s.measured < s.predicted.low.count ? "below the interval" : "";
}

doc::Table rows_table(const std::vector<PublishedScore>& scores, bool every_row) {
  using doc::Kind;
  doc::Table out{{{"row"}, {"kind"}, {"measured", Kind::size}, {"predicted", Kind::size}, {"error", Kind::number}, {"interval"}}};
  for (const PublishedScore& s : scores) {
    if (!s.unsupported.empty() || (!every_row && std::abs(s.error()) <= 0.05)) continue;
    const std::string place = place_of(s);
    out.rows.push_back({{s.id, to_string(s.kind), Bytes{s.measured}, s.predicted.bytes, with_sign(s.error()),
                         doc::interval(s.predicted.low, s.predicted.high) + (place.empty() ? "" : ": " + place)}});
  }
  return out;
}

Ordered number(double value) { return std::isfinite(value) ? Ordered(value) : Ordered(nullptr); }

}  // namespace

doc::Document published_document(const std::vector<PublishedScore>& scores, bool every_row) {
  std::map<std::string, int> reasons;
  for (const PublishedScore& s : scores)
    if (!s.unsupported.empty()) ++reasons[s.family + ": " + s.unsupported];
  doc::Document out;
  out.blocks = {summary_table(scores), doc::Paragraph{every_row ? "Every row:" : "Rows more than 5 % off:"}, rows_table(scores, every_row)};
  doc::Table refused{{{"family: reason"}, {"rows", doc::Kind::number}}};
  for (const auto& [reason, count] : reasons) refused.rows.push_back({{reason, std::to_string(count)}});
  doc::append(out.blocks, {doc::Paragraph{"Rows that cannot be expressed:"}, std::move(refused)});
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
