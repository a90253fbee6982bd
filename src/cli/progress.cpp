#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <utility>

namespace plimsoll {

namespace {
constexpr std::chrono::milliseconds kSilentFor{1000}, kBetween{100}, kPause{10000};  // to the first line, between two; where no terminal is
}

OnProgress reading_progress(const std::string& file) {
  using Clock = std::chrono::steady_clock;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  return [file, terminal, next = Clock::now() + kSilentFor](size_t done, size_t total, const char*) mutable {
    if (done >= total && terminal) std::cerr << "\r\033[K" << std::flush;
    if (done >= total || Clock::now() < next) return true;
    std::cerr << fmt::format("{}reading {}: {} %{}", terminal ? "\r" : "", file, done * 100 / total, terminal ? "" : "\n") << std::flush;
    next = Clock::now() + (terminal ? kBetween : kPause);
    return true;
  };
}

namespace {

// The line while it is there.
class CountingLine {
 public:
  CountingLine() = default;
  CountingLine(const CountingLine&) = delete;
  CountingLine& operator=(const CountingLine&) = delete;
  ~CountingLine() { wipe(); }

  OnProgress tell() {
    if (!isatty(STDERR_FILENO)) return {};
    return [this, start = std::chrono::steady_clock::now()](size_t done, size_t total, const char* text) {
      if (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(500)) return true;
      std::cerr << fmt::format("\r{}{} {} ", done, total ? fmt::format(" of {}", total) : "", text) << std::flush;
      shown_ = true;
      return true;
    };
  }
  void wipe() {
    if (std::exchange(shown_, false)) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  bool shown_ = false;
};

}  // namespace

ExitCode answer_counting(const OutputFlags& output, const std::function<ExitCode(const Show&)>& answer) {
  CountingLine line;
  Show show = output.show(line.tell());
  show.answer = [&line, print = show.answer](const auto& text, const auto& json) {
    line.wipe();
    print(text, json);
  };
  return answer(show);
}

}  // namespace plimsoll
