// The what-if table: what each lever saves for this job, what it costs, and which do nothing here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/levers.h"
#include "report/document.h"

namespace plimsoll {

// What cannot help on the device asked about, and why; one line.
doc::Text left_out_text(const std::vector<std::string>& levers);
doc::Blocks what_if_blocks(const WhatIf& w);
nlohmann::ordered_json left_out_json(const std::vector<std::string>& levers);
nlohmann::ordered_json what_if_json(const WhatIf& w);

}  // namespace plimsoll
