// What a log says of a failure, for people and for programs: what ran out, who asked, why, and what to change.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "diagnose/diagnosis.h"
#include "report/style.h"

namespace plimsoll {

std::string diagnosis_text(const Diagnosis& d, const Style& style);
nlohmann::ordered_json diagnosis_json(const Diagnosis& d);

}  // namespace plimsoll
