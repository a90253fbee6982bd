// Whether a run fits, device by device, as blocks of a document and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "estimate/fit.h"
#include "report/document.h"

namespace plimsoll {

// Red is for what does not fit.
doc::Text verdict_text(Verdict v);
// What lies outside the allocator, row by row.
void add_overheads(doc::Facts& facts, const std::vector<Overhead>& overheads);
// What measured runs add to them.
void add_correction(doc::Facts& facts, const Correction& c);
doc::Blocks fits_blocks(const std::vector<Fit>& fits);  // none for no device
nlohmann::ordered_json range_json(const ByteRange& range);
nlohmann::ordered_json overheads_json(const std::vector<Overhead>& overheads);
nlohmann::ordered_json correction_json(const Correction& c);
nlohmann::ordered_json fits_json(const std::vector<Fit>& fits);

}  // namespace plimsoll
