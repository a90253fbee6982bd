#include "score/score.h"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "report/style.h"
#include "score/published_report.h"
#include "util/bytes.h"

namespace plimsoll {

namespace {

struct ScoreFlags {
  std::vector<std::string> files;
  std::string walk;
  bool all = false, markdown = false;
  OutputFlags output;
};

struct Summary {
  int rows = 0, predicted = 0, exact = 0, equal = 0, within_one_percent = 0, unsupported = 0;
  double worst_percent = 0;
  std::string worst_id;
  double speed_up = 0;  // geometric mean of recorded seconds over simulated seconds
  double least_speed_up = 0;
};

double percent_error(const Score& s) {
  return s.measured == 0 ? 0 : 100.0 * static_cast<double>(s.error()) / static_cast<double>(s.measured);
}

Summary summarise(const std::vector<Score>& scores) {
  Summary sum;
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

std::string verdict(const Score& s) {
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

void print_text(const std::vector<Score>& scores, const Summary& sum, bool all) {
  std::cout << fmt::format("{:<44} {:>18} {:>18} {:>14} {:>9}  {}\n", "row", "measured", "predicted", "difference", "%", "verdict");
  for (const Score& s : scores) {
    if (!all && s.exact()) continue;
    const bool known = s.unsupported.empty();
    std::cout << fmt::format("{:<44} {:>18} {:>18} {:>14} {:>9}  {}\n", s.id, with_commas(s.measured),
                             known ? with_commas(s.predicted) : "-", known ? with_commas(s.error()) : "-",
                             known ? fmt::format("{:+.3f}", percent_error(s)) : "-", verdict(s));
  }
  std::cout << fmt::format(
      "{} rows: {} equal to the byte in peak, phases, steps and breakdown; {} of {} predicted peaks equal, {} within 1 %; {} cannot be "
      "done\n",
      sum.rows, sum.exact, sum.equal, sum.predicted, sum.within_one_percent, sum.unsupported);
  if (!sum.worst_id.empty()) std::cout << fmt::format("worst: {:+.3f} % ({})\n", sum.worst_percent, sum.worst_id);
  if (sum.speed_up > 0)
    std::cout << fmt::format("speed: {:.0f} times the recorder's PyTorch run (geometric mean), at least {:.0f} times\n", sum.speed_up,
                             sum.least_speed_up);
}

void print_json(const std::vector<Score>& scores, const Summary& sum) {
  nlohmann::ordered_json j{{"schema", 1}, {"command", "score"}, {"rows", nlohmann::ordered_json::array()}};
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
  std::cout << dump(j, 2) << "\n";
}

// Compares every row whose events are in `folder`, and tells the first difference of each that has one. Returns whether
// all were equal.
bool walk(const std::vector<RecordedRow>& rows, const std::vector<Score>& scores, const std::string& folder) {
  int walked = 0, equal = 0;
  std::error_code error;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string path = (std::filesystem::path(folder) / (rows[i].id + ".json")).string();
    if (!scores[i].unsupported.empty() || !std::filesystem::exists(path, error)) continue;
    const std::string difference = first_difference(rows[i], path);
    ++walked;
    equal += difference.empty();
    if (!difference.empty()) std::cout << fmt::format("{}: {}\n", rows[i].id, difference);
  }
  std::cout << fmt::format("{} rows walked event by event, {} equal in every event\n", walked, equal);
  return walked == equal;
}

// Whether the file's first row is one that people published from a GPU.
bool holds_published_rows(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line))
    if (line.find_first_not_of(" \t\r") != std::string::npos) return is_published_row(line);
  return false;
}

void report_progress(size_t done, size_t total) {
  if (isatty(STDERR_FILENO)) std::cerr << fmt::format("\r{} of {}", done, total) << std::flush;
  if (isatty(STDERR_FILENO) && done == total) std::cerr << "\r\033[K";
}

ExitCode score_gpu_rows(const ScoreFlags& flags) {
  std::vector<PublishedRow> rows;
  for (const std::string& file : flags.files)
    for (PublishedRow& row : read_published_rows(file)) rows.push_back(std::move(row));
  std::vector<PublishedScore> scores;
  for (const PublishedRow& row : rows) {
    scores.push_back(score_published(row));
    report_progress(scores.size(), rows.size());
  }
  if (flags.output.json) {
    std::cout << dump(published_json(scores), 2) << "\n";
  } else {
    std::cout << (flags.markdown ? published_markdown(scores) : published_text(scores, flags.all));
  }
  return ExitCode::ok;
}

}  // namespace

std::function<ExitCode()> set_up_score(CLI::App& app) {
  auto flags = std::make_shared<ScoreFlags>();
  app.footer(
      "Each line of a file is one run recorded from real PyTorch (tools/recorder/README.md). Rows that are equal in every\n"
      "respect are counted, not listed; --all lists them too. --walk DIR compares event by event with DIR/<id>.json.\n"
      "Exit code 0 when every row that can be simulated is equal, 3 when one differs.\n"
      "A file of measurements from real GPUs (rows with a `measured` object) is scored by kind and family instead: error, share\n"
      "within 5 and 10 %, share under-predicted, share inside the stated interval. --markdown prints the tables of docs/accuracy.md.\n"
      "Examples:\n"
      "  plimsoll score tests/truth/transformers.jsonl\n"
      "  plimsoll score gpu_rows.jsonl --all");
  app.add_option("files", flags->files, "recorded rows, one JSON object a line")->required()->type_name("FILE.jsonl");
  app.add_flag("--all", flags->all, "list every row");
  app.add_flag("--markdown", flags->markdown, "GPU rows: the report as Markdown");
  app.add_option("--walk", flags->walk, "folder of recorded events: compare event by event, show the first difference of each row")
      ->type_name("DIR");
  flags->output.add_to(app);
  return [flags] {
    const auto published = std::count_if(flags->files.begin(), flags->files.end(), holds_published_rows);
    if (published > 0 && published < static_cast<long>(flags->files.size()))
      throw Error("[score] rows of real GPUs and recorded rows in one call", "score them apart", ExitCode::usage);
    if (published > 0) return score_gpu_rows(*flags);
    std::vector<Score> scores;
    std::vector<RecordedRow> rows;
    for (const std::string& file : flags->files)
      for (RecordedRow& row : read_recorded_rows(file)) rows.push_back(std::move(row));
    for (const RecordedRow& row : rows) {
      scores.push_back(score_row(row));
      report_progress(scores.size(), rows.size());
    }
    const Summary sum = summarise(scores);
    if (flags->output.json) {
      print_json(scores, sum);
    } else {
      print_text(scores, sum, flags->all);
    }
    const bool walked_equal = flags->walk.empty() || walk(rows, scores, flags->walk);
    return sum.exact == sum.predicted && walked_equal ? ExitCode::ok : ExitCode::no;
  };
}

}  // namespace plimsoll
