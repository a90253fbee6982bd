#include "cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace plimsoll {

void keep_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) == -1 && errno == EBADF) {
      const int opened = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the wrong way round: it cannot be used
      if (opened != stream && opened >= 0) close(opened);
    }
}

bool output_was_written() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::cout.good() && std::ferror(stdout) == 0) return true;
  std::cerr << "plimsoll: the answer could not be written" << (errno != 0 ? std::string(": ") + std::strerror(errno) : "")
            << "\n  hint: is the disk full, or the output closed?\n";
  return false;
}

}  // namespace plimsoll
