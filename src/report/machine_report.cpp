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

// Each with its facts.
doc::Blocks device_blocks(const DetectedDevice& d) {
  doc::Facts facts;
  const auto line = [&](const char* key, const std::string& text) { facts.facts.push_back({key, text}); };
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
  return {doc::Heading{headline(d), {}, 2}, std::move(facts)};
}

doc::Facts host_facts(const Machine& m) {
  const HostMemory& h = m.host;
  doc::Facts out;
  const auto line = [&](const char* key, const std::string& text) { out.facts.push_back({key, text}); };
  if (m.devices.empty()) line("GPU", "none was found");
  if (!m.system.empty()) line("system", m.system + (m.wsl ? ", WSL" : "") + (m.container ? ", container" : ""));
  if (!m.nvidia_driver.empty()) line("NVIDIA driver", m.nvidia_driver);
  line("host memory", fmt::format("{} in all, {} available now, swap {}", shown(h.total), shown(h.available), shown(h.swap)));
  if (h.limit) line("limit", fmt::format("{}, of which {} is in use ({})", shown(h.limit), shown(h.limit_used), h.limit_source));
  if (h.shm) line("/dev/shm", shown(h.shm));
  return out;
}

doc::List list_of(const std::vector<std::string>& lines) {
  doc::List out;
  for (const std::string& line : lines) out.items.emplace_back(line);
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

doc::Document machine_document(const Machine& m) {
  doc::List seen;
  for (const Observation& o : m.raw)
    seen.items.emplace_back(fmt::format("{}{}: {}", o.source, o.what.empty() ? "" : " " + o.what, o.value));
  doc::Document out;
  // The conclusion first; what it rests on is for those who doubt it.
  out.blocks = {doc::Heading{"Concluded"}, host_facts(m)};
  for (const DetectedDevice& d : m.devices) doc::append(out.blocks, device_blocks(d));
  out.blocks.emplace_back(doc::Heading{"In the way"});
  out.blocks.emplace_back(m.blockers.empty() ? doc::List{{"nothing"}} : list_of(m.blockers));
  if (!m.conclusions.empty()) doc::append(out.blocks, {doc::Heading{"Notes"}, list_of(m.conclusions)});
  doc::append(out.blocks, {doc::Heading{"Seen"}, std::move(seen)});
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
