// The tables behind the AI Toolkit's rules (rules.h), for `plimsoll list ai-toolkit`: what it takes each architecture, each
// resolution and the workers to need. They are its figures, not ours.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "report/document.h"

namespace plimsoll {

nlohmann::ordered_json ai_toolkit_tables_json();
doc::Document ai_toolkit_tables_document();

}  // namespace plimsoll
