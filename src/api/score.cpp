#include "api/score.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "score/published_report.h"
#include "score/score_report.h"

namespace plimsoll {

namespace {

// Whether the file's first row is one that people published from a GPU.
bool holds_published_rows(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line))
    if (line.find_first_not_of(" \t\r") != std::string::npos) return is_published_row(line);
  return false;
}

template <class Row>
std::vector<Row> rows_of(const std::vector<std::string>& files, std::vector<Row> (*read)(const std::string&)) {
  std::vector<Row> out;
  for (const std::string& file : files)
    for (Row& row : read(file)) out.push_back(std::move(row));
  return out;
}

template <class Row, class Score>
std::vector<Score> scores_of(const std::vector<Row>& rows, Score (*score)(const Row&), const Show& show) {
  std::vector<Score> out;
  for (const Row& row : rows) {
    out.push_back(score(row));
    if (show.progress && !show.progress(out.size(), rows.size(), "rows scored")) throw Cancelled{};
  }
  return out;
}

ExitCode answer_published(const ScoreRequest& request, const Show& show) {
  const std::vector<PublishedScore> scores = scores_of(rows_of(request.files, read_published_rows), score_published, show);
  show([&] { return published_document(scores, request.all); }, [&] { return published_json(scores); });
  return ExitCode::ok;
}

ExitCode answer_recorded(const ScoreRequest& request, const Show& show) {
  const std::vector<RecordedRow> rows = rows_of(request.files, read_recorded_rows);
  const std::vector<Score> scores = scores_of(rows, score_row, show);
  std::optional<ScoreWalk> walk;
  if (!request.walk.empty()) walk = walk_events(rows, scores, request.walk);
  show(
      [&] {
        doc::Document document = score_document(scores, request.all);
        if (walk) doc::append(document.blocks, walk_blocks(*walk));
        return document;
      },
      [&] {
        nlohmann::ordered_json json = score_json(scores);
        if (walk) json["walk"] = walk_json(*walk);
        return json;
      });
  const ScoreSummary sum = summarise(scores);
  return sum.exact == sum.predicted && (!walk || walk->walked == walk->equal) ? ExitCode::ok : ExitCode::no;
}

}  // namespace

const Keys<ScoreRequest>& score_keys() {
  using R = ScoreRequest;
  static const Keys<R> kKeys{
      {.key = "files", .member = &R::files, .value = "FILE.jsonl", .help = "recorded rows, one JSON object a line", .flag = false},
      {"all", &R::all, "", "list every row"},
      {"walk", &R::walk, "DIR", "folder of recorded events: compare event by event, show the first difference of each row"}};
  return kKeys;
}

std::vector<RequestKey> score_request_keys() {
  std::vector<RequestKey> keys = described(score_keys());
  keys.front().required = true;
  return keys;
}

ScoreRequest score_request(const nlohmann::json& request) {
  const Config fields = request_of(request, score_request_keys());
  ScoreRequest out;
  read_keys(fields, score_keys(), out);
  return out;
}

ExitCode answer(const ScoreRequest& request, const Show& show) {
  if (request.files.empty()) throw Error("[score] no file of rows is named", "e.g. tests/truth/transformers.jsonl", ExitCode::usage);
  const auto published = std::count_if(request.files.begin(), request.files.end(), holds_published_rows);
  if (published > 0 && published < static_cast<long>(request.files.size()))
    throw Error("[score] rows of real GPUs and recorded rows in one call", "score them apart", ExitCode::usage);
  return published > 0 ? answer_published(request, show) : answer_recorded(request, show);
}

}  // namespace plimsoll
