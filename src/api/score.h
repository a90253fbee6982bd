// Predictions beside recorded and published runs: what `plimsoll score` does between the question and the answer.
#pragma once

#include <string>
#include <vector>

#include "api/request_keys.h"
#include "api/show.h"

namespace plimsoll {

struct ScoreRequest {
  std::vector<std::string> files;  // of rows, one JSON object a line
  std::string walk;                // a folder of recorded events; empty: none are compared
  bool all = false;                // the text lists every row
};

const Keys<ScoreRequest>& score_keys();
std::vector<RequestKey> score_request_keys();
ScoreRequest score_request(const nlohmann::json& request);
// 3 when a recorded row that can be simulated differs.
ExitCode answer(const ScoreRequest& request, const Show& show);

}  // namespace plimsoll
