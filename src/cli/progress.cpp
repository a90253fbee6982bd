#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <iostream>

namespace plimsoll {

namespace {
constexpr std::chrono::milliseconds kPatience{1000}, kBetween{100}, kPause{10000};  // to the first line, between two; where no terminal is
}

OnProgress reading_progress(const std::string& file) {
  using Clock = std::chrono::steady_clock;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  return [file, terminal, next = Clock::now() + kPatience](size_t done, size_t total, const char*) mutable {
    if (done >= total && terminal) std::cerr << "\r\033[K" << std::flush;
    if (done >= total || Clock::now() < next) return true;
    std::cerr << fmt::format("{}reading {}: {} %{}", terminal ? "\r" : "", file, done * 100 / total, terminal ? "" : "\n") << std::flush;
    next = Clock::now() + (terminal ? kBetween : kPause);
    return true;
  };
}

}  // namespace plimsoll
