#include "util/bytes.h"

#include <fmt/format.h>

namespace plimsoll {

std::string to_string(Bytes bytes) {
  constexpr double kKiB = 1024.0, kMiB = kKiB * 1024, kGiB = kMiB * 1024, kTiB = kGiB * 1024;
  const double n = static_cast<double>(bytes.count), size = n < 0 ? -n : n;
  if (size >= 1024 * kTiB) return fmt::format("{:.3e} TiB", n / kTiB);
  if (size >= 100 * kMiB) return fmt::format("{:.2f} GiB", n / kGiB);
  if (size >= kMiB) return fmt::format("{:.2f} MiB", n / kMiB);
  if (size >= kKiB) return fmt::format("{:.2f} KiB", n / kKiB);
  return fmt::format("{} B", bytes.count);
}

std::string percent_of(Bytes part, Bytes whole) {
  if (whole.count == 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part.count) / static_cast<double>(whole.count));
}

std::string with_commas(int64_t n) {
  std::string digits = std::to_string(n);
  const int first = n < 0 ? 1 : 0;
  for (int i = static_cast<int>(digits.size()) - 3; i > first; i -= 3) digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

}  // namespace plimsoll
