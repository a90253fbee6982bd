// What the scores of recorded rows amount to, and how they are shown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "report/document.h"
#include "score/score.h"

namespace plimsoll {

struct ScoreSummary {
  int rows = 0, predicted = 0, exact = 0, equal = 0, within_one_percent = 0, unsupported = 0;
  double worst_percent = 0;
  std::string worst_id;
  double speed_up = 0;  // geometric mean of recorded seconds over simulated seconds
  double least_speed_up = 0;
};
ScoreSummary summarise(const std::vector<Score>& scores);

// Rows whose events were recorded, compared event by event.
struct ScoreWalk {
  int walked = 0, equal = 0;
  std::vector<std::pair<std::string, std::string>> differences;  // the id of a row, its first difference
};
ScoreWalk walk_events(const std::vector<RecordedRow>& rows, const std::vector<Score>& scores, const std::string& folder);

doc::Document score_document(const std::vector<Score>& scores, bool every_row);
nlohmann::ordered_json score_json(const std::vector<Score>& scores);
doc::Blocks walk_blocks(const ScoreWalk& walk);
nlohmann::ordered_json walk_json(const ScoreWalk& walk);

}  // namespace plimsoll
