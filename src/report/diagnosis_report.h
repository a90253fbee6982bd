// What a log says of a failure, for people and for programs: what ran out, who asked, why, and what to change.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "diagnose/diagnosis.h"
#include "report/document.h"

namespace plimsoll {

// `verbose`: every change, not the first few.
doc::Document diagnosis_document(const Diagnosis& d, bool verbose = false);
nlohmann::ordered_json diagnosis_json(const Diagnosis& d);

}  // namespace plimsoll
