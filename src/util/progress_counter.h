// Counts what several threads do together, and tells whoever waits.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "util/progress.h"

namespace plimsoll {

class ProgressCounter {
 public:
  ProgressCounter(OnProgress tell, const char* text, size_t total = 0) : tell_(std::move(tell)), text_(text), total_(total) {}

  // That more are to come, where their number is not known from the beginning.
  void expect(size_t more) {
    const std::lock_guard lock(mutex_);
    total_ += more;
  }
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
