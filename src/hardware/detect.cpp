#include "hardware/detect.h"

#include <fmt/format.h>

#include <algorithm>

#include "hardware/capacity.h"
#include "hardware/lookup.h"
#include "hardware/sources.h"
#include "hardware/visible.h"
#include "util/text.h"

namespace plimsoll {

namespace {

// In order: a later source fills in what an earlier one left open.
constexpr void (*kSources[])(const Surroundings&, Machine&) = {probe_system,   probe_host_memory, probe_nvml,  probe_nvidia_proc,
                                                               probe_rocm_smi, probe_drm,         probe_apple, probe_fdinfo};

std::string label(const DetectedDevice& d) { return d.name.empty() ? fmt::format("{} device {}", d.vendor, d.index) : d.name; }

// Total memory as a name's variants are told apart by. A slice's size says nothing about its parent's model, and a pool's nothing but of
// Apple's chips, which are sold by it.
void identify(DetectedDevice& d) {
  const auto rows = devices_of_driver(d.name, d.memory == MemoryKind::unified && d.vendor != "Apple" ? std::nullopt : d.total, d.target);
  if (rows.empty()) return;
  if (rows.size() == 1) d.catalogue_id = rows[0].id;
  const bool agree = std::all_of(rows.begin(), rows.end(), [&](const DeviceSpec& r) { return r.memory == rows[0].memory; });
  if (agree && d.memory == MemoryKind::discrete) d.memory = rows[0].memory;
}

void use_pool(Machine& m, DetectedDevice& d) {
  const auto pool = m.host.usable_total();
  if (!pool) {
    d.basis = "memory is one pool with the host's, whose size is unknown";
    m.blockers.push_back(label(d) + ": " + d.basis);
    return;
  }
  d.usable = pool;
  d.basis = "one pool with the host: /proc/meminfo" + std::string(m.host.limit && m.host.limit == pool ? " and the control group" : "") +
            ", where the system, the page cache and every process share it";
}

// Both sizes that PyTorch was seen to report on 128 GB Strix Halo machines, 15.24 and 62.47 GiB (ROCm/TheRock issue 1054), are half
// of the memory that the firmware's carve-out leaves to the host, which is the kernel's default for GTT.
void use_gtt(DetectedDevice& d) {
  d.usable = d.shared_total ? d.shared_total : d.total;
  d.basis =
      d.shared_total ? "GTT, the host memory that the driver lends; the carve-out is apart" : "the firmware's carve-out; GTT is not known";
  if (!d.usable) d.basis = "neither the carve-out nor GTT is known";
}

// The framework's total is the driver's less its reserve.
void use_driver(DetectedDevice& d) {
  if (d.reserved) {
    d.usable = *d.total - *d.reserved;
    d.basis = "the driver's total less its reserve";
    return;
  }
  if (d.vendor != "NVIDIA") {
    d.usable = d.total;
    d.basis = "the driver's total";
    return;
  }
  DeviceSpec like;
  like.vendor = d.vendor;
  like.driver_total_mib = static_cast<double>(d.total->count) / (1 << 20);
  const auto capacity = usable_memory(like);
  d.usable = capacity->bytes;
  d.basis = capacity->basis;
}

void use_catalogue(Machine& m, DetectedDevice& d) {
  const auto spec = std::find_if(catalogue().begin(), catalogue().end(), [&](const DeviceSpec& r) { return r.id == d.catalogue_id; });
  const auto capacity = spec == catalogue().end() ? std::nullopt : usable_memory(*spec);
  if (!capacity || !d.parent_uuid.empty()) {
    d.basis = "the driver does not say, and the catalogue does not know this name";
    m.blockers.push_back(fmt::format("{}: its memory is unknown: {}", label(d), d.basis));
    return;
  }
  d.usable = capacity->bytes;
  d.basis = "from the catalogue, because the driver does not say: " + capacity->basis;
  m.blockers.push_back(label(d) + ": its size is the catalogue's, and what other programs use of it is unknown");
}

void establish(Machine& m, DetectedDevice& d) {
  if (d.usable || d.split) return;
  if (d.memory == MemoryKind::unified && d.vendor == "AMD" && (d.total || d.shared_total)) {
    use_gtt(d);
  } else if (d.memory == MemoryKind::unified && !d.total) {
    use_pool(m, d);
  } else if (d.total) {
    use_driver(d);
  } else if (d.vendor == "Intel") {
    d.basis = "the kernel driver tells no memory of its own: integrated, or a card whose size needs Level Zero";
  } else {
    use_catalogue(m, d);
  }
}

void conclude(Machine& m) {
  const auto visible = std::count_if(m.devices.begin(), m.devices.end(), [](const DetectedDevice& d) { return d.visible != Visible::no; });
  if (m.devices.empty()) {
    m.blockers.push_back("no GPU was found: no driver library, nothing in /sys/class/drm or /proc/driver/nvidia");
  } else if (visible == 0) {
    m.blockers.push_back("every device is hidden from a process started here");
  }
  if (!m.host.total) m.blockers.push_back("the host's memory is unknown: /proc/meminfo cannot be read or understood");
  if (m.host.limit && m.host.total && *m.host.limit < *m.host.total)
    m.conclusions.push_back(
        fmt::format("the control group allows {} of the machine's {}", to_string(*m.host.limit), to_string(*m.host.total)));
  for (const DetectedDevice& d : m.devices)
    if (d.catalogue_id.empty() && d.parent_uuid.empty())
      m.conclusions.push_back(label(d) + " matches no single row of the catalogue: its bandwidth and speed are unknown");
}

}  // namespace

DetectedDevice* device_at(Machine& m, const std::string& pci) {
  for (DetectedDevice& d : m.devices)
    if (d.pci == pci && d.parent_uuid.empty()) return &d;
  return nullptr;
}

std::optional<Bytes> plausible(uint64_t bytes) {
  constexpr uint64_t kPiB = uint64_t{1} << 50;
  return bytes == 0 || bytes >= kPiB ? std::nullopt : std::optional(Bytes{static_cast<int64_t>(bytes)});
}

Machine detect(const Surroundings& surroundings) {
  Machine m;
  for (const auto source : kSources) source(surroundings, m);
  apply_visibility(surroundings, m);
  for (DetectedDevice& d : m.devices) {
    if (d.parent_uuid.empty()) identify(d);
    establish(m, d);
  }
  conclude(m);
  return m;
}

}  // namespace plimsoll
