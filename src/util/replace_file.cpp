#include "util/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "util/error.h"

namespace plimsoll {

namespace fs = std::filesystem;

namespace {

constexpr int kMostCopies = 10000;

[[noreturn]] void cannot_write(const std::string& path) {
  throw Error("[file] " + path + " cannot be written: " + std::strerror(errno), "check its directory's permissions and room",
              ExitCode::usage);
}

// Written down to the disk, or removed again. The file must be new.
void write_new(const std::string& path, std::string_view bytes, mode_t mode) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) cannot_write(path);
  bool good = ::fchmod(file, mode) == 0;
  for (size_t done = 0; good && done < bytes.size();) {
    const ssize_t n = ::write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    good = n > 0;
    done += good ? static_cast<size_t>(n) : 0;
  }
  good = good && ::fsync(file) == 0;
  const int why = errno;
  ::close(file);
  if (good) return;
  ::unlink(path.c_str());
  errno = why;
  cannot_write(path);
}

std::string unused_name(const std::string& path) {
  std::string name = path + ".orig";
  struct stat there {};
  for (int i = 1; ::lstat(name.c_str(), &there) == 0; ++i) {
    if (i > kMostCopies) throw Error("[file] " + path + " has too many copies beside it", "remove some", ExitCode::usage);
    name = path + ".orig." + std::to_string(i);
  }
  return name;
}

void settle_directory(const fs::path& folder) {
  const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

}  // namespace

std::string replace_file(const std::string& path, std::string_view before, std::string_view after) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error || !fs::is_regular_file(target, error)) throw Error("[file] " + path + " is not a file", "name a file", ExitCode::usage);
  std::ifstream in(target, std::ios::binary);
  const std::string now{std::istreambuf_iterator<char>(in), {}};
  if (now != before) throw Error("[file] " + path + " was changed by somebody else meanwhile", "ask again");
  struct stat facts {};
  if (::stat(target.c_str(), &facts) != 0) cannot_write(path);
  const std::string backup = unused_name(path), unfinished = target.string() + ".part." + std::to_string(::getpid());
  write_new(backup, before, facts.st_mode & 07777);
  try {
    write_new(unfinished, after, facts.st_mode & 07777);
    if (::rename(unfinished.c_str(), target.c_str()) != 0) {
      const int why = errno;
      ::unlink(unfinished.c_str());
      errno = why;
      cannot_write(path);
    }
  } catch (const Error&) {
    ::unlink(backup.c_str());
    throw;
  }
  settle_directory(target.parent_path());
  return backup;
}

}  // namespace plimsoll
