#include "api/pipe_input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "util/error.h"

namespace plimsoll {

namespace {
// To the word that says what is waited for; until a named pipe without a writer is given up; between two looks at it.
constexpr std::chrono::milliseconds kSilence{1000}, kNoWriter{10'000}, kLook{250};
}  // namespace

bool PipeInput::is_pipe(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_fifo(path, error);
}

PipeInput::PipeInput(const std::string& path, Note note)
    : name_(path == "-" ? "standard input" : path), note_(std::move(note)), named_(path != "-"), buffer_(1 << 16) {
  silent_since_ = std::chrono::steady_clock::now();
  if (named_) descriptor_ = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // which does not wait for a writer
  if (descriptor_ < 0) throw Error("[explain] cannot open " + path + ": " + std::strerror(errno), "check the path and its permissions");
}

PipeInput::~PipeInput() {
  if (named_) close(descriptor_);
}

bool PipeInput::wait() {
  pollfd look{descriptor_, POLLIN, 0};
  poll(&look, 1, static_cast<int>(kLook.count()));
  if ((look.revents & POLLHUP) != 0) had_writer_ = true;  // and it is gone
  if (look.revents != 0) return true;
  const auto silent = std::chrono::steady_clock::now() - silent_since_;
  if (silent > kSilence && !std::exchange(said_, true) && note_)
    note_("plimsoll: waiting for " + name_ +
          (isatty(descriptor_) != 0 ? ": paste the log, then Ctrl-D\n" : ", which has sent nothing yet\n"));
  return !named_ || had_writer_ || silent < kNoWriter;
}

PipeInput::int_type PipeInput::underflow() {
  for (;;) {
    if (!named_ && !wait()) return traits_type::eof();
    pollfd look{descriptor_, POLLIN, 0};
    if (!named_ && poll(&look, 1, 0) == 0) continue;
    const ssize_t n = read(descriptor_, buffer_.data(), buffer_.size());
    if (n > 0) {
      had_writer_ = true;
      silent_since_ = std::chrono::steady_clock::now();
      setg(buffer_.data(), buffer_.data(), buffer_.data() + n);
      return traits_type::to_int_type(buffer_[0]);
    }
    if (n < 0 && errno == EAGAIN) had_writer_ = true;
    if (n < 0 && errno != EAGAIN && errno != EINTR) return traits_type::eof();
    if (n == 0 && (!named_ || had_writer_)) return traits_type::eof();
    if (!wait())
      throw Error("[explain] nobody writes to " + name_, "it is a pipe: start what writes to it, or name a file; - is standard input");
  }
}

}  // namespace plimsoll
