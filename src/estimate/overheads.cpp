#include "estimate/overheads.h"

#include <charconv>
#include <utility>

#include "hardware/csv.h"
#include "hardware/embedded.h"
#include "util/error.h"

namespace plimsoll {

namespace {

Bytes mebibytes(const CsvRow& row, size_t field, const std::string& file) {
  const std::string& text = row.fields[field];
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 0 || n > (1 << 20))
    throw Error("[overheads] " + file + ":" + std::to_string(row.line) + ": '" + text + "' is not a number of MiB",
                "write a whole number, 0 or more");
  return {n << 20};
}

}  // namespace

std::vector<OverheadRow> parse_overheads(std::string_view text, const std::string& file) {
  std::vector<OverheadRow> rows;
  bool header = true;
  for (const CsvRow& line : read_csv(text, file)) {
    if (std::exchange(header, false)) continue;
    const std::vector<std::string>& f = line.fields;
    if (f.size() != 9)
      throw Error("[overheads] " + file + ":" + std::to_string(line.line) + ": " + std::to_string(f.size()) + " fields instead of 9",
                  "the header names them");
    OverheadRow row{f[0], f[1], f[2], std::nullopt, f[4], {mebibytes(line, 6, file), mebibytes(line, 5, file), mebibytes(line, 7, file)},
                    f[8]};
    if (!f[3].empty()) row.largest_gb = static_cast<double>(mebibytes(line, 3, file).count >> 20);
    if (row.range.low > row.range.bytes || row.range.bytes > row.range.high || row.source.empty())
      throw Error("[overheads] " + file + ":" + std::to_string(line.line) + ": not low <= typical <= high with a source",
                  "every row has a source");
    rows.push_back(row);
  }
  return rows;
}

const std::vector<OverheadRow>& overhead_table() {
  static const std::vector<OverheadRow> kRows = parse_overheads(embedded_overheads_csv(), "data/overheads.csv");
  return kRows;
}

namespace {

// "8" begins "8.6", not "80".
bool begins(const std::string& target, const std::string& prefix) {
  return target.rfind(prefix, 0) == 0 &&
         (target.size() == prefix.size() || prefix.find('.') != std::string::npos || prefix.empty() || target[prefix.size()] == '.');
}

bool applies(const OverheadRow& row, const DeviceFacts& facts) {
  DeviceSpec some;
  some.vendor = "NVIDIA";
  const DeviceSpec& d = facts.device ? *facts.device : some;
  if (row.vendor != d.vendor || !begins(d.compute_capability, row.target)) return false;
  if (row.largest_gb && !(d.nominal_gb && *d.nominal_gb <= *row.largest_gb)) return false;
  const bool eager = facts.torch < Version{1, 13};  // PyTorch asks for lazy loading since 1.13 (pull 86509)
  if (row.condition == "lazy" || row.condition == "eager") return (row.condition == "eager") == eager;
  return row.condition == "convolutions" ? facts.convolutions : facts.ranks > 1;
}

}  // namespace

std::vector<Overhead> overheads(const DeviceFacts& facts) {
  std::vector<Overhead> out;
  std::string last;
  for (const OverheadRow& row : overhead_table()) {  // the first row of a name that applies is the most specific one
    if (row.name == last || !applies(row, facts)) continue;
    out.push_back({row.name, row.range, row.source});
    last = row.name;
  }
  return out;
}

}  // namespace plimsoll
