#include "cli/progress.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <iostream>
#include <mutex>
#include <thread>
#include <utility>

namespace plimsoll {

namespace {

using Clock = std::chrono::steady_clock;

// To the first word, and between two: on a terminal a person waits, elsewhere a file grows.
constexpr std::chrono::milliseconds kFirst{700}, kBetween{250}, kFirstInFile{10'000}, kBetweenInFile{10'000};

volatile std::sig_atomic_t interrupted = 0;
extern "C" void note_interrupt(int) { interrupted = 1; }

// Ctrl-C asks for an end; the second one is the system's.
class Interrupts {
 public:
  Interrupts() {
    interrupted = 0;
    struct sigaction ask {};
    ask.sa_handler = note_interrupt;
    ask.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    sigaction(SIGINT, nullptr, &before_);
    if (before_.sa_handler != SIG_IGN) sigaction(SIGINT, &ask, nullptr);  // nohup's stays
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts() { sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

// The line, and who writes it when nothing is told for a while.
class ProgressLine {
 public:
  ProgressLine() : terminal_(isatty(STDERR_FILENO) != 0), begun_(Clock::now()), counted_from_(begun_), writer_([this] { write(); }) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { end(); }

  bool tell(size_t done, size_t total, const char* text) {
    const std::lock_guard lock(mutex_);
    if (std::strcmp(text, text_) != 0) counted_from_ = text_[0] == '\0' ? begun_ : Clock::now();
    done_ = done, total_ = total, text_ = text;
    return interrupted == 0;
  }

  void say(const std::string& lines) {
    const std::lock_guard lock(mutex_);
    std::cerr << (std::exchange(shown_, false) ? "\r\033[K" : "") << lines << std::flush;
  }

  // Nothing is written from here on.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    if (writer_.joinable()) writer_.join();
    if (std::exchange(shown_, false)) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  void write() {
    std::unique_lock lock(mutex_);
    auto next = begun_ + (terminal_ ? kFirst : kFirstInFile);
    while (!wake_.wait_until(lock, next, [this] { return ended_; })) {
      const double seconds = std::chrono::duration<double>(Clock::now() - counted_from_).count();
      const std::string line =
          interrupted != 0 ? "ending with what is known; Ctrl-C again ends at once" : progress_text(done_, total_, text_, seconds);
      std::cerr << (terminal_ ? "\r\033[K" : "plimsoll: ") << line << (terminal_ ? "" : "\n") << std::flush;
      shown_ = terminal_;
      next = Clock::now() + (terminal_ ? kBetween : kBetweenInFile);
    }
  }

  const bool terminal_;
  const Clock::time_point begun_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Clock::time_point counted_from_;  // since when what is counted now is counted
  size_t done_ = 0, total_ = 0;
  const char* text_ = "";
  bool ended_ = false, shown_ = false;
  std::thread writer_;  // the last: it uses the others
};

ExitCode guarded(ProgressLine& line, const std::function<ExitCode()>& answer) {
  try {
    return answer();
  } catch (const Cancelled&) {
    line.end();
    std::cerr << "plimsoll: ended by Ctrl-C, before there was an answer\n";
    return Cancelled::kCode;
  } catch (...) {
    line.end();
    throw;
  }
}

}  // namespace

ExitCode with_progress(const std::function<ExitCode(const OnProgress&)>& answer) {
  const Interrupts interrupts;
  ProgressLine line;
  return guarded(line, [&] { return answer([&](size_t done, size_t total, const char* text) { return line.tell(done, total, text); }); });
}

ExitCode answer_with_progress(const OutputFlags& output, const std::function<ExitCode(const Show&)>& answer) {
  const Interrupts interrupts;
  ProgressLine line;
  Show show = output.show([&](size_t done, size_t total, const char* text) { return line.tell(done, total, text); });
  show.best_so_far = true;
  show.answer = [&line, print = show.answer](const auto& text, const auto& json) {
    line.end();
    print(text, json);
  };
  show.notes = [&line](const std::string& lines) { line.say(lines); };
  return guarded(line, [&] { return answer(show); });
}

}  // namespace plimsoll
