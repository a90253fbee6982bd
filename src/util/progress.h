// How far a long answer is, for whoever waits for it and may end it.
#pragma once

#include <functional>
#include <string>

#include "util/error.h"

namespace plimsoll {

// How much is done, of `total` (0: not known), and of what. Returns false to end it. May be empty; never called from two threads at once.
using OnProgress = std::function<bool(size_t done, size_t total, const char* text)>;

// For people, after so many seconds: "12 of 25 changes executed, about 20 s more"; bytes are told as percent. Nothing done: "working, 3 s".
std::string progress_text(size_t done, size_t total, const char* text, double seconds);

// Thrown when it was ended. Not a std::exception: whoever catches those on the way means something that went wrong.
struct Cancelled {
  static constexpr ExitCode kCode = static_cast<ExitCode>(7);
};

}  // namespace plimsoll
