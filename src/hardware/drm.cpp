// Devices as the kernel shows them: /sys/class/drm (amdgpu, i915, xe; NVIDIA's open driver has no memory files) and, for AMD, the
// compute topology of /sys/class/kfd.
#include <fmt/format.h>

#include <algorithm>

#include "hardware/sources.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// PCI vendors.
constexpr const char *kAmd = "0x1002", *kIntel = "0x8086", *kNvidia = "0x10de";

bool is_card(const std::string& name) {
  return name.size() > 4 && name.starts_with("card") && std::all_of(name.begin() + 4, name.end(), ::isdigit);
}

std::string place_of(const Surroundings& s, const std::string& device) {
  const auto values = key_values(s.read(device + "/uevent").value_or(""), '=');
  const auto found = values.find("PCI_SLOT_NAME");
  return found == values.end() ? "" : lower(found->second);
}

std::optional<Bytes> size_in(const Surroundings& s, Machine& m, const std::string& file) {
  const auto text = s.read(file);
  if (!text) return std::nullopt;
  m.saw(file, "", printable(*text));
  const auto number = whole_number(*text);
  return number && *number > 0 ? plausible(static_cast<uint64_t>(*number)) : std::nullopt;
}

void read_amd(const Surroundings& s, Machine& m, const std::string& device, DetectedDevice& d) {
  if (const auto total = size_in(s, m, device + "/mem_info_vram_total"); !d.total) d.total = total;
  if (const auto shared = size_in(s, m, device + "/mem_info_gtt_total"); !d.shared_total) d.shared_total = shared;
  if (const auto used = size_in(s, m, device + "/mem_info_vram_used"); !d.used) d.used = used;
  if (d.total && d.used && *d.used > *d.total) d.used = std::nullopt;
  if (const std::string product = printable(s.read(device + "/product_name").value_or("")); d.name.empty()) d.name = product;
  if (d.uuid.empty())
    if (const auto id = s.read(device + "/unique_id"); id && !id->empty()) d.uuid = "GPU-" + printable(*id);
}

// i915 has lmem_total_bytes beside the card where it has memory of its own; an integrated device has none.
void read_intel(const Surroundings& s, Machine& m, const std::string& card, DetectedDevice& d) {
  d.total = size_in(s, m, card + "/lmem_total_bytes");
}

void read_card(const Surroundings& s, Machine& m, const std::string& card) {
  const std::string device = card + "/device", vendor = s.read(device + "/vendor").value_or("");
  if (vendor != kAmd && vendor != kIntel && vendor != kNvidia) return;
  const std::string pci = place_of(s, device), chip = printable(s.read(device + "/device").value_or(""));
  m.saw(device, "vendor, device, slot", fmt::format("{} {} {}", vendor, chip, printable(pci)));
  DetectedDevice* known = pci.empty() ? nullptr : device_at(m, pci);
  DetectedDevice fresh;
  DetectedDevice& d = known ? *known : fresh;
  if (vendor == kAmd) read_amd(s, m, device, d);
  if (vendor == kIntel) read_intel(s, m, card, d);
  if (known) return;
  d.vendor = vendor == kAmd ? "AMD" : vendor == kIntel ? "Intel" : "NVIDIA";
  d.source = "/sys/class/drm";
  d.pci = printable(pci);
  if (d.name.empty()) d.name = fmt::format("{} device {}", d.vendor, chip);
  const auto same = [&](const DetectedDevice& other) { return other.vendor == d.vendor && other.index >= 0; };
  d.index = static_cast<int>(std::count_if(m.devices.begin(), m.devices.end(), same));
  m.devices.push_back(std::move(fresh));
}

// gfx_target_version 110501 is gfx1151: two decimal digits each of minor and stepping, printed in hexadecimal.
std::string target_of(int64_t version) {
  if (version <= 0 || version > 999999) return "";
  return fmt::format("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100);
}

// location_id is bus, device and function; domain beside it.
void read_kfd_node(const Surroundings& s, Machine& m, const std::string& folder) {
  const auto values = key_values(s.read(folder + "/properties").value_or(""), ' ');
  const auto number = [&](const char* key) { return values.contains(key) ? whole_number(values.at(key)).value_or(-1) : -1; };
  if (number("simd_count") <= 0) return;
  const int64_t place = number("location_id"), domain = std::max<int64_t>(0, number("domain"));
  const std::string pci = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, place >> 8 & 0xff, place >> 3 & 0x1f, place & 7);
  const std::string target = target_of(number("gfx_target_version"));
  m.saw(folder, "slot, target, CPU cores", fmt::format("{} {} {}", pci, target, number("cpu_cores_count")));
  DetectedDevice* d = device_at(m, pci);
  if (!d) return;
  d->target = target;
  // A node with CPU cores and SIMDs is an APU.
  if (number("cpu_cores_count") > 0) d->memory = MemoryKind::unified;
}

}  // namespace

void probe_drm(const Surroundings& s, Machine& m) {
  for (const std::string& card : s.list("/sys/class/drm"))
    if (is_card(card)) read_card(s, m, "/sys/class/drm/" + card);
  const std::string nodes = "/sys/class/kfd/kfd/topology/nodes";
  for (const std::string& node : s.list(nodes)) read_kfd_node(s, m, nodes + "/" + node);
}

}  // namespace plimsoll
