#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

namespace plimsoll {

std::function<void(size_t, size_t)> reading_progress(const std::string& file) {
  if (!isatty(STDERR_FILENO)) return {};
  return [file](size_t done, size_t total) {
    if (done >= total) {
      std::cerr << "\r\033[K" << std::flush;
    } else {
      std::cerr << fmt::format("\rreading {}: {} %", file, done * 100 / total) << std::flush;
    }
  };
}

}  // namespace plimsoll
