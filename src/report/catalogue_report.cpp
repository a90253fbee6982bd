#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "hardware/capacity.h"
#include "report/hardware_report.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

Json value(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }
Json value(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
Json bytes(const std::optional<double>& count, double unit) { return count ? Json(static_cast<int64_t>(*count * unit)) : Json(nullptr); }

std::string cell(const std::optional<double>& number) { return number ? fmt::format("{:g}", *number) : "-"; }

std::string usable_cell(const DeviceSpec& d) {
  const auto capacity = usable_memory(d);
  if (!capacity) return "-";
  return (d.usable_gib ? "" : "~") + to_string(capacity->bytes);
}

Json device_json(const DeviceSpec& d) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  const auto capacity = usable_memory(d);
  Json j{
      {"id", d.id},           {"name", d.name}, {"driver_name", value(d.driver_name)}, {"vendor", d.vendor}, {"segment", value(d.segment)},
      {"arch", value(d.arch)}};
  // Sold as GB, built in powers of two.
  j["nominal_bytes"] = bytes(d.nominal_gb, kGiB);
  j["driver_total_bytes"] = bytes(d.driver_total_mib, kMiB);
  j["usable_bytes"] = capacity ? Json(capacity->bytes.count) : Json(nullptr);
  j["usable_low_bytes"] = capacity ? Json(capacity->low.count) : Json(nullptr);
  j["usable_high_bytes"] = capacity ? Json(capacity->high.count) : Json(nullptr);
  j["usable_seen"] = d.usable_gib.has_value();
  j["usable_basis"] = capacity ? Json(capacity->basis) : Json(nullptr);
  j["memory"] = to_string(d.memory);
  j["memory_type"] = value(d.memory_type);
  j["bandwidth_gbs"] = value(d.bandwidth_gbs);
  j["bf16_tflops"] = value(d.bf16_tflops);
  j["fp16_tflops"] = value(d.fp16_tflops);
  j["tf32_tflops"] = value(d.tf32_tflops);
  j["fp32_tflops"] = value(d.fp32_tflops);
  j["interconnect"] = value(d.interconnect);
  j["interconnect_gbs"] = value(d.interconnect_gbs);
  j["compute_capability"] = value(d.compute_capability);
  j["sources"] = d.sources;
  j["notes"] = value(d.notes);
  return j;
}

}  // namespace

doc::Document catalogue_document(const std::vector<DeviceSpec>& devices) {
  using doc::Kind;
  doc::Table table{{{"id"},
                    {"nominal GB", Kind::number},
                    {"usable", Kind::size},
                    {"memory"},
                    {"GB/s", Kind::number},
                    {"bf16 TFLOPs", Kind::number},
                    {"fp32 TFLOPs", Kind::number},
                    {"name"}}};
  for (const DeviceSpec& d : devices)
    table.rows.push_back({{d.id, cell(d.nominal_gb), usable_cell(d), to_string(d.memory), cell(d.bandwidth_gbs), cell(d.bf16_tflops),
                           cell(d.fp32_tflops), d.name}});
  return {"", {}, {std::move(table)}};
}

Json catalogue_json(const std::vector<DeviceSpec>& devices) {
  Json out = Json::array();
  for (const DeviceSpec& d : devices) out.push_back(device_json(d));
  return out;
}

}  // namespace plimsoll
