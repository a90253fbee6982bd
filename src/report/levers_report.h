// The what-if table: what each lever saves for this job, what it costs, and which do nothing here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/levers.h"
#include "report/style.h"

namespace plimsoll {

std::string what_if_text(const WhatIf& w, const Style& style);
nlohmann::ordered_json what_if_json(const WhatIf& w);

}  // namespace plimsoll
