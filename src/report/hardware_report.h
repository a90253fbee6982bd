// The device catalogue and what was found on this machine, as text for people and as JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "hardware/machine.h"
#include "report/style.h"

namespace plimsoll {

// One line a device under a line of headings; "-" is not established, "~" before a size that is derived, not seen.
std::string catalogue_text(const std::vector<DeviceSpec>& devices);
nlohmann::ordered_json catalogue_json(const std::vector<DeviceSpec>& devices);

// What was seen, what follows, what blocks the answer: ready for a bug report.
std::string machine_text(const Machine& m, const Style& style);
nlohmann::ordered_json machine_json(const Machine& m);

}  // namespace plimsoll
