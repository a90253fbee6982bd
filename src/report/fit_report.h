// Whether a run fits, device by device, as text and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "estimate/fit.h"
#include "report/style.h"

namespace plimsoll {

// What lies outside the allocator, row by row.
std::string overheads_text(const std::vector<Overhead>& overheads, const Style& style);
// What measured runs add to them.
std::string correction_text(const Correction& c, const Style& style);
std::string fits_text(const std::vector<Fit>& fits, const Style& style);
nlohmann::ordered_json range_json(const ByteRange& range);
nlohmann::ordered_json overheads_json(const std::vector<Overhead>& overheads);
nlohmann::ordered_json correction_json(const Correction& c);
nlohmann::ordered_json fits_json(const std::vector<Fit>& fits);

}  // namespace plimsoll
