// One exception type for everything a user can cause: a message that names the value, and a hint that names a way out.
// Programmer mistakes assert instead.
#pragma once

#include <stdexcept>
#include <string>

namespace plimsoll {

// What the process exits with; documented in docs/exit-codes.md. `no` is a valid answer: does not fit, does not match.
enum class ExitCode { ok = 0, internal = 1, usage = 2, no = 3, tight = 4, bad_input = 5, no_hardware = 6 };

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string hint = "", ExitCode code = ExitCode::bad_input)
      : std::runtime_error(message), hint_(std::move(hint)), code_(code) {}

  const std::string& hint() const { return hint_; }
  ExitCode code() const { return code_; }

 private:
  std::string hint_;
  ExitCode code_;
};

}  // namespace plimsoll
