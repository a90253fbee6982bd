// Apple silicon: one pool of memory, of which Metal gives a process a part.
#include <fmt/format.h>

#include "hardware/capacity.h"
#include "hardware/sources.h"

namespace plimsoll {

void probe_apple(const Surroundings& s, Machine& m) {
  if (!s.sysctl) return;
  const auto chip = s.sysctl("machdep.cpu.brand_string"), memory = s.sysctl("hw.memsize"), limit = s.sysctl("iogpu.wired_limit_mb");
  if (chip) m.saw("sysctl", "machdep.cpu.brand_string", printable(*chip));
  if (memory) m.saw("sysctl", "hw.memsize", printable(*memory));
  if (limit) m.saw("sysctl", "iogpu.wired_limit_mb", printable(*limit));
  if (!chip || !chip->starts_with("Apple M")) return;
  DetectedDevice d;
  d.vendor = "Apple";
  d.source = "sysctl";
  d.name = printable(*chip);
  d.memory = MemoryKind::unified;
  d.index = 0;
  const auto bytes = memory ? whole_number(*memory) : std::nullopt;
  if (bytes && *bytes > 0) {
    const Bytes ram{*bytes};
    d.total = plausible(static_cast<uint64_t>(*bytes));
    if (!m.host.total) m.host.total = d.total;
    // 0 is the default; anything else is the user's own limit, in MiB.
    const auto wired = limit ? whole_number(*limit) : std::nullopt;
    const bool set = wired && *wired > 0 && *wired <= ram.count / (1 << 20);
    d.usable = set ? Bytes{*wired << 20} : apple_working_set(ram);
    d.basis = set ? "iogpu.wired_limit_mb" : "Metal's default working set: 2/3 of the memory up to 36 GB, 3/4 above";
  }
  m.devices.push_back(std::move(d));
}

}  // namespace plimsoll
