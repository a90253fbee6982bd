// The device catalogue and what was found on this machine, as documents for people and as JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "hardware/machine.h"
#include "report/document.h"

namespace plimsoll {

// A row per device; "-" is not established, "~" before a size that is derived, not seen.
doc::Document catalogue_document(const std::vector<DeviceSpec>& devices);
nlohmann::ordered_json catalogue_json(const std::vector<DeviceSpec>& devices);

// What was seen, what follows, what blocks the answer: ready for a bug report.
doc::Document machine_document(const Machine& m);
nlohmann::ordered_json machine_json(const Machine& m);

}  // namespace plimsoll
