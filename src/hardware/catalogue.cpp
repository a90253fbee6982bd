#include "hardware/catalogue.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <set>

#include "hardware/csv.h"
#include "hardware/embedded.h"
#include "util/error.h"
#include "util/text.h"

namespace plimsoll {

namespace {

constexpr const char* kColumns[] = {"id",
                                    "name",
                                    "driver_name",
                                    "vendor",
                                    "segment",
                                    "arch",
                                    "memory_gb_nominal",
                                    "memory_total_mib_driver",
                                    "memory_gib_usable",
                                    "memory_type",
                                    "bandwidth_gbs",
                                    "bf16_tflops_dense",
                                    "fp16_tflops_dense",
                                    "tf32_tflops_dense",
                                    "fp32_tflops",
                                    "unified",
                                    "interconnect",
                                    "interconnect_gbs",
                                    "compute_capability",
                                    "source",
                                    "notes"};
constexpr size_t kColumnCount = std::size(kColumns);

// One row with the file and line that its errors name.
class Fields {
 public:
  Fields(const CsvRow& row, const std::string& source) : row_(row), source_(source) {
    if (row.fields.size() != kColumnCount)
      fail(fmt::format("{} fields instead of {}", row.fields.size(), kColumnCount), "a field that holds a comma needs quotes");
  }

  std::string text(const char* column) const { return row_.fields[index(column)]; }

  std::string required(const char* column) const {
    std::string value = text(column);
    if (value.empty()) fail(fmt::format("{} is empty", column), "every device has an id, a name, a vendor and a source");
    return value;
  }

  std::optional<double> number(const char* column) const {
    const std::string value = text(column);
    if (value.empty()) return std::nullopt;
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number) || number <= 0)
      fail(fmt::format("{} '{}' is not a number above zero", column, value), "leave the field empty when the value is not established");
    return number;
  }

  MemoryKind memory(const char* column) const {
    const std::string value = text(column);
    if (value == "no") return MemoryKind::discrete;
    if (value == "coherent") return MemoryKind::coherent;
    if (value == "yes") return MemoryKind::unified;
    fail(fmt::format("{} '{}' is not known", column, value), "known: yes, no, coherent");
  }

  [[noreturn]] void fail(const std::string& what, const std::string& hint) const {
    throw Error(fmt::format("[catalogue] {}:{}: {}", source_, row_.line, what), hint);
  }

 private:
  static size_t index(std::string_view column) {
    size_t i = 0;
    while (kColumns[i] != column) ++i;
    return i;
  }

  const CsvRow& row_;
  const std::string& source_;
};

std::map<std::string, std::string> source_keys(std::string_view csv) {
  std::map<std::string, std::string> out;
  for (const CsvRow& row : read_csv(csv, "gpus_sources.csv")) {
    if (row.fields.size() != 2 || row.fields[0].empty() || row.fields[1].empty())
      throw Error(fmt::format("[catalogue] gpus_sources.csv:{}: a row is KEY,SOURCE", row.line),
                  "a source that holds a comma needs quotes");
    out.emplace(row.fields[0], row.fields[1]);
  }
  return out;
}

// A key of the sources table, or a source in words ("svethardware.cz Arc specs"). A lone word that is no key is a misspelt key.
std::vector<std::string> sources_of(const Fields& fields, const std::map<std::string, std::string>& keys) {
  std::vector<std::string> out;
  const std::string text = fields.required("source");
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (const auto known = keys.find(part); known != keys.end()) {
      out.push_back(known->second);
    } else if (part.find(' ') == std::string::npos) {
      fields.fail(fmt::format("source '{}' is not a key of the sources table", part), "add the key there, or write the source in words");
    } else {
      out.push_back(part);
    }
    begin = end + 1;
  }
  return out;
}

DeviceSpec device_of(const Fields& f, const std::map<std::string, std::string>& keys) {
  DeviceSpec d;
  d.id = f.required("id");
  d.name = f.required("name");
  d.driver_name = f.text("driver_name");
  d.vendor = f.required("vendor");
  d.segment = f.text("segment");
  d.arch = f.text("arch");
  d.nominal_gb = f.number("memory_gb_nominal");
  d.driver_total_mib = f.number("memory_total_mib_driver");
  d.usable_gib = f.number("memory_gib_usable");
  d.memory_type = f.text("memory_type");
  d.bandwidth_gbs = f.number("bandwidth_gbs");
  d.bf16_tflops = f.number("bf16_tflops_dense");
  d.fp16_tflops = f.number("fp16_tflops_dense");
  d.tf32_tflops = f.number("tf32_tflops_dense");
  d.fp32_tflops = f.number("fp32_tflops");
  d.memory = f.memory("unified");
  d.interconnect = f.text("interconnect");
  d.interconnect_gbs = f.number("interconnect_gbs");
  d.compute_capability = f.text("compute_capability");
  d.sources = sources_of(f, keys);
  d.notes = f.text("notes");
  if (d.usable_gib && d.driver_total_mib && *d.usable_gib * 1024 > *d.driver_total_mib)
    f.fail(fmt::format("memory_gib_usable {} is more than memory_total_mib_driver {}", *d.usable_gib, *d.driver_total_mib),
           "usable is what the driver leaves of its total");
  return d;
}

void require_header(const std::vector<CsvRow>& rows, const std::string& source) {
  const std::vector<std::string> wanted(std::begin(kColumns), std::end(kColumns));
  if (rows.empty() || rows[0].fields != wanted)
    throw Error(fmt::format("[catalogue] {}:1: the header is not the expected one", source), "expected: " + join(wanted, ","));
}

}  // namespace

const char* to_string(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::discrete: return "discrete";
    case MemoryKind::coherent: return "coherent";
    case MemoryKind::unified: return "unified";
  }
  return "discrete";
}

std::vector<DeviceSpec> parse_catalogue(std::string_view devices_csv, std::string_view sources_csv, const std::string& source) {
  const auto keys = source_keys(sources_csv);
  const std::vector<CsvRow> rows = read_csv(devices_csv, source);
  require_header(rows, source);
  std::vector<DeviceSpec> out;
  std::set<std::string> ids;
  for (size_t i = 1; i < rows.size(); ++i) {
    const Fields fields(rows[i], source);
    out.push_back(device_of(fields, keys));
    if (!ids.insert(lower(out.back().id)).second) fields.fail(fmt::format("id '{}' repeats", out.back().id), "an id names one device");
  }
  return out;
}

const std::vector<DeviceSpec>& catalogue() {
  static const std::vector<DeviceSpec> kCatalogue = parse_catalogue(embedded_gpus_csv(), embedded_gpu_sources_csv(), "gpus.csv");
  return kCatalogue;
}

}  // namespace plimsoll
