// The table of settings for people and programs: docs/job-file.md holds this document as Markdown.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "report/document.h"

namespace plimsoll {

nlohmann::ordered_json settings_json();  // a row per setting
doc::Document settings_document();       // a table per group

}  // namespace plimsoll
