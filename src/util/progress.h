// How far a long answer is, for whoever waits for it and may end it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "util/error.h"

namespace plimsoll {

// How much is done, of `total` (0: not known), and of what. Returns false to end it. May be empty; never called from two threads at once.
using OnProgress = std::function<bool(size_t done, size_t total, const char* text)>;

// Thrown when it was ended. Not a std::exception: whoever catches those on the way means something that went wrong.
struct Cancelled {
  static constexpr ExitCode kCode = static_cast<ExitCode>(7);
};

// Counts what several threads do, and tells.
class Progress {
 public:
  Progress(OnProgress tell, const char* text, size_t total = 0) : tell_(std::move(tell)), text_(text), total_(total) {}

  void advance(size_t done = 1) {
    const std::lock_guard lock(mutex_);
    done_ += done;
    if (tell_ && !cancelled_ && !tell_(done_, total_, text_)) cancelled_ = true;
  }
  bool cancelled() const { return cancelled_; }

 private:
  OnProgress tell_;
  const char* text_;
  size_t total_, done_ = 0;
  std::mutex mutex_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace plimsoll
