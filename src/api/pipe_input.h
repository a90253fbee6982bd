// A log from a pipe: standard input, or a named one. Whoever waits for it hears what is waited for, and a named pipe that nobody writes to
// is refused instead of waited for without end.
#pragma once

#include <chrono>
#include <functional>
#include <istream>
#include <streambuf>
#include <string>
#include <vector>

namespace plimsoll {

class PipeInput final : public std::streambuf {
 public:
  using Note = std::function<void(const std::string& lines)>;

  // "-": standard input. Throws an Error where it cannot be opened.
  PipeInput(const std::string& path, Note note);
  PipeInput(const PipeInput&) = delete;
  PipeInput& operator=(const PipeInput&) = delete;
  ~PipeInput() override;

  static bool is_pipe(const std::string& path);  // a named one, or one of the shell's: <(command)

 protected:
  int_type underflow() override;

 private:
  bool wait();  // for what comes; false: nobody will write

  std::string name_;
  Note note_;
  int descriptor_ = 0;
  bool named_ = false, had_writer_ = false, said_ = false;
  std::chrono::steady_clock::time_point silent_since_;
  std::vector<char> buffer_;
};

}  // namespace plimsoll
