#include "hardware/capacity.h"

#include <fmt/format.h>

namespace plimsoll {

namespace {

Bytes gib(double n) { return {static_cast<int64_t>(n * (1 << 30))}; }

// What a driver keeps of its total, in GiB.
struct Reserve {
  double typical, least, most;
};

// NVIDIA: nvidia-smi's total less PyTorch's "total capacity", in the 29 rows of the catalogue that have both: median 0.47 GiB. The 22 up to
// 90 GiB keep 0.24 (RTX 2080 Ti) to 0.85 (A100 80 GB); the 7 above, 0.48 (H100 NVL) to 1.08 (GH200), median 0.62. The intervals are
// these ranges: how well they hold for other devices is not established.
// AMD: MI300X 191.98 and 191.69 of 192 GiB, RX 7900 XT 19.98 of 20 GiB. Intel: Arc B580 11.93 of 12 GiB.
std::optional<Reserve> reserve_of(const DeviceSpec& d, double total) {
  if (d.vendor == "NVIDIA") return total > 90 ? Reserve{0.62, 0.48, 1.08} : Reserve{0.47, 0.24, 0.85};
  if (d.vendor == "AMD") return Reserve{0.02, 0.02, 0.31};
  if (d.vendor == "Intel") return Reserve{0.07, 0.07, 0.07};
  return std::nullopt;
}

// ECC on GDDR takes a sixteenth: 24576 -> 23028 MiB (A10, L4), 49152 -> 46068 (A40, L40S), 16384 -> 15360 (T4).
bool may_lose_to_ecc(const DeviceSpec& d) {
  return d.memory_type.starts_with("GDDR") && (d.segment == "datacenter" || d.segment == "workstation");
}

Capacity less_reserve(double total, double smallest_total, const std::optional<Reserve>& r, const std::string& basis) {
  if (!r) return {gib(total), gib(smallest_total), gib(total), basis + "; what its driver keeps is not established"};
  return {gib(total - r->typical), gib(smallest_total - r->most), gib(total - r->least),
          fmt::format("{} less what such drivers keep ({:g} to {:g} GiB)", basis, r->least, r->most)};
}

Capacity of_pool(const DeviceSpec& d) {
  const Bytes pool = gib(*d.nominal_gb);
  if (d.vendor == "Apple") {
    const Bytes set = apple_working_set(pool);
    return {set, set, pool, fmt::format("Metal's default working set of {:g} GB that the system shares", *d.nominal_gb)};
  }
  return {pool, Bytes{0}, pool, "nominal size of one pool shared with the system: ask the machine"};
}

}  // namespace

// 2/3 of the memory up to 36 GB, 3/4 above: the "max allowed" of PyTorch's MPS errors (9.07, 18.13, 20.40, 27.20, 36.27 GB) are
// 1.7 (PyTorch's default high watermark) x 2/3 x 8, 16, 18, 24, 32.
Bytes apple_working_set(Bytes ram) { return ram <= gib(36) ? Bytes{ram.count / 3 * 2} : Bytes{ram.count / 4 * 3}; }

std::optional<Capacity> usable_memory(const DeviceSpec& d) {
  if (d.usable_gib)
    return Capacity{gib(*d.usable_gib), gib(*d.usable_gib), gib(*d.usable_gib), "usable memory as the framework reports it on this device"};
  if (d.driver_total_mib) {
    const double total = *d.driver_total_mib / 1024;
    return less_reserve(total, total, reserve_of(d, total), fmt::format("the driver's total of {:g} MiB", *d.driver_total_mib));
  }
  if (!d.nominal_gb) return std::nullopt;
  if (d.memory == MemoryKind::unified) return of_pool(d);
  const double total = *d.nominal_gb;
  return less_reserve(total, may_lose_to_ecc(d) ? total * 15 / 16 : total, reserve_of(d, total),
                      fmt::format("nominal {:g} GB{}", total, may_lose_to_ecc(d) ? " (a sixteenth less with ECC on)" : ""));
}

}  // namespace plimsoll
