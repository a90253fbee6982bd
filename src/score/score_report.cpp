#include "score/score_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "util/bytes.h"

namespace plimsoll {

namespace {

double percent_error(const Score& s) {
  return s.measured == 0 ? 0 : 100.0 * static_cast<double>(s.error()) / static_cast<double>(s.measured);
}

}  // namespace

ScoreSummary summarise(const std::vector<Score>& scores) {
  ScoreSummary sum;
  double logs = 0;
  int timed = 0;
  for (const Score& s : scores) {
    ++sum.rows;
    if (!s.unsupported.empty()) {
      ++sum.unsupported;
      continue;
    }
    ++sum.predicted;
    sum.exact += s.exact();
    sum.equal += s.error() == 0;
    sum.within_one_percent += std::abs(percent_error(s)) <= 1.0;
    if (std::abs(percent_error(s)) > std::abs(sum.worst_percent)) {
      sum.worst_percent = percent_error(s);
      sum.worst_id = s.id;
    }
    if (s.recorded_seconds > 0 && s.simulated_seconds > 0) {
      const double ratio = s.recorded_seconds / s.simulated_seconds;
      sum.least_speed_up = timed == 0 ? ratio : std::min(sum.least_speed_up, ratio);
      logs += std::log(ratio);
      ++timed;
    }
  }
  if (timed > 0) sum.speed_up = std::exp(logs / timed);
  return sum;
}

namespace {

std::string verdict_of(const Score& s) {
  if (!s.unsupported.empty()) return "cannot: " + s.unsupported;
  if (s.exact()) return "equal";
  std::string what;
  if (!s.phase_peaks_equal) what += " phases";
  if (!s.breakdown_equal) what += " breakdown";
  if (!s.step_peaks_equal) what += " steps";
  if (!s.parameters_equal) what += " parameters";
  if (!s.pools_equal) what += " pools";
  if (!s.rounded_equal) what += " rounded peak";
  return s.error() == 0 ? "peak equal, not:" + what : "differs";
}

}  // namespace

doc::Document score_document(const std::vector<Score>& scores, bool every_row) {
  using doc::Kind;
  const ScoreSummary sum = summarise(scores);
  doc::Table table{
      {{"row"}, {"measured", Kind::number}, {"predicted", Kind::number}, {"difference", Kind::number}, {"%", Kind::number}, {"verdict"}}};
  for (const Score& s : scores) {
    if (!every_row && s.exact()) continue;
    const bool known = s.unsupported.empty();
    const auto number = [&](int64_t n) { return known ? doc::Text(doc::Count{n}) : doc::Text("-"); };
    table.rows.push_back({{s.id, doc::Count{s.measured}, number(s.predicted), number(s.error()),
                           known ? fmt::format("{:+.3f}", percent_error(s)) : "-", verdict_of(s)}});
  }
  doc::Blocks out;
  if (!table.rows.empty()) out.emplace_back(std::move(table));
  out.emplace_back(
      doc::Paragraph{fmt::format("{} rows: {} equal to the byte in peak, phases, steps and breakdown; {} of {} predicted peaks equal, {} "
                                 "within 1 %; {} cannot be done",
                                 sum.rows, sum.exact, sum.equal, sum.predicted, sum.within_one_percent, sum.unsupported)});
  if (!sum.worst_id.empty()) out.emplace_back(doc::Paragraph{fmt::format("worst: {:+.3f} % ({})", sum.worst_percent, sum.worst_id)});
  if (sum.speed_up > 0)
    out.emplace_back(doc::Paragraph{fmt::format("speed: {:.0f} times the recorder's PyTorch run (geometric mean), at least {:.0f} times",
                                                sum.speed_up, sum.least_speed_up)});
  return {"", {}, std::move(out)};
}

nlohmann::ordered_json score_json(const std::vector<Score>& scores) {
  const ScoreSummary sum = summarise(scores);
  nlohmann::ordered_json j{{"schema", 1}, {"command", "score"}, {"kind", "recorded"}, {"rows", nlohmann::ordered_json::array()}};
  for (const Score& s : scores) {
    nlohmann::ordered_json row{{"id", s.id}, {"measured_bytes", s.measured}};
    if (s.unsupported.empty()) {
      row.update({{"predicted_bytes", s.predicted},
                  {"error_bytes", s.error()},
                  {"phase_peaks_equal", s.phase_peaks_equal},
                  {"breakdown_equal", s.breakdown_equal},
                  {"step_peaks_equal", s.step_peaks_equal},
                  {"pools_equal", s.pools_equal},
                  {"unsupported", nullptr},
                  {"simulated_seconds", s.simulated_seconds},
                  {"recorded_seconds", s.recorded_seconds}});
    } else {
      row.update({{"predicted_bytes", nullptr},
                  {"error_bytes", nullptr},
                  {"phase_peaks_equal", nullptr},
                  {"breakdown_equal", nullptr},
                  {"step_peaks_equal", nullptr},
                  {"pools_equal", nullptr},
                  {"unsupported", s.unsupported}});
    }
    j["rows"].push_back(row);
  }
  j["summary"] = {{"rows", sum.rows},
                  {"predicted", sum.predicted},
                  {"exact", sum.exact},
                  {"peak_equal", sum.equal},
                  {"within_1_percent", sum.within_one_percent},
                  {"unsupported", sum.unsupported},
                  {"worst_percent", sum.worst_percent},
                  {"worst_id", sum.worst_id},
                  {"speed_up", sum.speed_up},
                  {"least_speed_up", sum.least_speed_up}};
  return j;
}

ScoreWalk walk_events(const std::vector<RecordedRow>& rows, const std::vector<Score>& scores, const std::string& folder) {
  ScoreWalk out;
  std::error_code error;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string path = (std::filesystem::path(folder) / (rows[i].id + ".json")).string();
    if (!scores[i].unsupported.empty() || !std::filesystem::exists(path, error)) continue;
    const std::string difference = first_difference(rows[i], path);
    ++out.walked;
    out.equal += difference.empty();
    if (!difference.empty()) out.differences.emplace_back(rows[i].id, difference);
  }
  return out;
}

doc::Blocks walk_blocks(const ScoreWalk& walk) {
  doc::Facts facts;
  for (const auto& [id, difference] : walk.differences) facts.facts.push_back({id, difference});
  doc::Blocks out;
  if (!facts.facts.empty()) out.emplace_back(std::move(facts));
  out.emplace_back(doc::Paragraph{fmt::format("{} rows walked event by event, {} equal in every event", walk.walked, walk.equal)});
  return out;
}

nlohmann::ordered_json walk_json(const ScoreWalk& walk) {
  nlohmann::ordered_json out{{"rows", walk.walked}, {"equal", walk.equal}, {"differences", nlohmann::ordered_json::array()}};
  for (const auto& [id, difference] : walk.differences) out["differences"].push_back({{"id", id}, {"first", difference}});
  return out;
}

}  // namespace plimsoll
