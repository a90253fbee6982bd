// The score against published GPU measurements as a document (as Markdown, the tables of docs/accuracy.md) and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "report/document.h"
#include "score/published_score.h"

namespace plimsoll {

doc::Document published_document(const std::vector<PublishedScore>& scores, bool every_row);
nlohmann::ordered_json published_json(const std::vector<PublishedScore>& scores);

}  // namespace plimsoll
