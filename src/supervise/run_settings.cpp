#include "supervise/run_settings.h"

#include <fmt/format.h>

namespace plimsoll {

std::string to_string(const RunValues& v) {
  std::string out = v.batch > 0 ? fmt::format("batch {}", v.batch) : "";
  if (v.accumulation > 0) out += fmt::format(" x {}", v.accumulation);
  if (v.workers >= 0) out += fmt::format("{}{} workers", out.empty() ? "" : ", ", v.workers);
  return out;
}

}  // namespace plimsoll
