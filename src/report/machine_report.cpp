#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/hardware_report.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::ordered_json;

Json bytes(const std::optional<Bytes>& size) { return size ? Json(size->count) : Json(nullptr); }
Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
std::string shown(const std::optional<Bytes>& size) { return size ? to_string(*size) : "unknown"; }

std::string headline(const DetectedDevice& d) {
  const std::string name = d.name.empty() ? d.vendor + " device without a name" : d.name;
  const std::string number = d.parent_uuid.empty() ? fmt::format("gpu {}", d.index) : fmt::format("  slice {}", d.index);
  return fmt::format("{}: {}", d.index < 0 ? "gpu" : number, name);
}

std::string device_text(const DetectedDevice& d, const Style& style) {
  std::string out = "  " + style.bold(headline(d)) + "\n";
  const auto line = [&](const char* key, const std::string& text) { out += fmt::format("    {:<10} {}\n", key, text); };
  if (!d.split) line("usable", fmt::format("{} ({})", shown(d.usable), d.basis));
  if (d.total) line("driver", fmt::format("total {}, reserved {}, in use {}", shown(d.total), shown(d.reserved), shown(d.used)));
  if (d.shared_total) line("GTT", shown(d.shared_total));
  line("memory", d.split ? "split into slices" : to_string(d.memory));
  line("visible", to_string(d.visible));
  line("catalogue", d.catalogue_id.empty() ? "-" : d.catalogue_id);
  std::vector<std::string> ids;
  for (const std::string& id : {d.target, d.pci, d.uuid})
    if (!id.empty()) ids.push_back(id);
  line("identity", join(ids, "  "));
  for (const DeviceProcess& p : d.processes) line("process", fmt::format("{} uses {}", p.pid, shown(p.used)));
  return out;
}

std::string host_text(const HostMemory& h) {
  std::string out = fmt::format("  host memory: {} in all, {} available now, swap {}\n", shown(h.total), shown(h.available), shown(h.swap));
  if (h.limit) out += fmt::format("  limit: {}, of which {} is in use ({})\n", shown(h.limit), shown(h.limit_used), h.limit_source);
  if (h.shm) out += fmt::format("  /dev/shm: {}\n", shown(h.shm));
  return out;
}

std::string list_text(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += "  - " + line + "\n";
  return out;
}

Json device_json(const DetectedDevice& d) {
  Json j{{"vendor", d.vendor},
         {"name", text_or_null(d.name)},
         {"index", d.index < 0 ? Json(nullptr) : Json(d.index)},
         {"uuid", text_or_null(d.uuid)},
         {"parent_uuid", text_or_null(d.parent_uuid)},
         {"pci", text_or_null(d.pci)},
         {"target", text_or_null(d.target)},
         {"source", d.source},
         {"visible", to_string(d.visible)},
         {"split", d.split},
         {"memory", to_string(d.memory)}};
  j["total_bytes"] = bytes(d.total);
  j["reserved_bytes"] = bytes(d.reserved);
  j["used_bytes"] = bytes(d.used);
  j["gtt_bytes"] = bytes(d.shared_total);
  j["usable_bytes"] = bytes(d.usable);
  j["usable_basis"] = text_or_null(d.basis);
  j["catalogue_id"] = text_or_null(d.catalogue_id);
  j["processes"] = Json::array();
  for (const DeviceProcess& p : d.processes) j["processes"].push_back({{"pid", p.pid}, {"used_bytes", bytes(p.used)}});
  return j;
}

}  // namespace

std::string machine_text(const Machine& m, const Style& style) {
  std::string out = style.bold("seen") + "\n";
  for (const Observation& o : m.raw) out += fmt::format("  {}{}: {}\n", o.source, o.what.empty() ? "" : " " + o.what, o.value);
  out += "\n" + style.bold("concluded") + "\n";
  if (!m.system.empty()) out += "  system: " + m.system + (m.wsl ? ", WSL" : "") + (m.container ? ", container" : "") + "\n";
  if (!m.nvidia_driver.empty()) out += "  NVIDIA driver: " + m.nvidia_driver + "\n";
  out += host_text(m.host);
  for (const DetectedDevice& d : m.devices) out += device_text(d, style);
  out += list_text(m.conclusions);
  out += "\n" + style.bold("in the way") + "\n" + (m.blockers.empty() ? "  nothing\n" : list_text(m.blockers));
  return out;
}

Json machine_json(const Machine& m) {
  Json j{{"schema", 1},  {"command", "doctor"},      {"system", text_or_null(m.system)},
         {"wsl", m.wsl}, {"container", m.container}, {"nvidia_driver", text_or_null(m.nvidia_driver)}};
  const HostMemory& h = m.host;
  j["host"] = {
      {"total_bytes", bytes(h.total)}, {"available_bytes", bytes(h.available)},         {"swap_bytes", bytes(h.swap)},
      {"limit_bytes", bytes(h.limit)}, {"limit_used_bytes", bytes(h.limit_used)},       {"limit_source", text_or_null(h.limit_source)},
      {"shm_bytes", bytes(h.shm)},     {"usable_total_bytes", bytes(h.usable_total())}, {"usable_now_bytes", bytes(h.usable_now())}};
  j["devices"] = Json::array();
  for (const DetectedDevice& d : m.devices) j["devices"].push_back(device_json(d));
  j["conclusions"] = m.conclusions;
  j["blockers"] = m.blockers;
  j["raw"] = Json::array();
  for (const Observation& o : m.raw) j["raw"].push_back({{"source", o.source}, {"what", o.what}, {"value", o.value}});
  return j;
}

}  // namespace plimsoll
