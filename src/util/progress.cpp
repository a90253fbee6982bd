#include "util/progress.h"

#include <fmt/format.h>

#include <cmath>

namespace plimsoll {

namespace {

constexpr size_t kBytesFrom = 1 << 20;  // totals from here on are of bytes

std::string time_left(double seconds) {
  if (seconds < 90) return fmt::format("about {:.0f} s more", std::ceil(seconds));
  return fmt::format("about {:.0f} min more", std::ceil(seconds / 60));
}

}  // namespace

std::string progress_text(size_t done, size_t total, const char* text, double seconds) {
  if (done == 0) return fmt::format("working, {:.0f} s", seconds);
  const bool more = total > done;
  const std::string left = more ? ", " + time_left(seconds / static_cast<double>(done) * static_cast<double>(total - done)) : "";
  if (total >= kBytesFrom) return fmt::format("{} % of {}{}", done * 100 / total, text, left);
  return fmt::format("{}{} {}{}", done, total > 0 ? fmt::format(" of {}", total) : "", text, left);
}

}  // namespace plimsoll
