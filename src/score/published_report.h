// The score against published GPU measurements as text, JSON and Markdown (the tables of docs/accuracy.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "score/published_score.h"

namespace plimsoll {

std::string published_text(const std::vector<PublishedScore>& scores, bool every_row);
std::string published_markdown(const std::vector<PublishedScore>& scores);
nlohmann::ordered_json published_json(const std::vector<PublishedScore>& scores);

}  // namespace plimsoll
