// Comma-separated text with a header line: quoted fields, doubled quotes, and the line each row began on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct CsvRow {
  int line = 0;  // counted from 1
  std::vector<std::string> fields;
};

// Throws Error naming `source` and the line when a quote is never closed or followed by something else than a comma.
// Empty lines are skipped.
std::vector<CsvRow> read_csv(std::string_view text, const std::string& source);

}  // namespace plimsoll
