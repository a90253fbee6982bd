#include "util/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "util/error.h"

namespace plimsoll {

namespace {

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat status {};
  if (file.number < 0 || fstat(file.number, &status) != 0)
    throw Error(fmt::format("[file] cannot open {}: {}", path, std::strerror(errno)), "is the path right?");
  if (S_ISDIR(status.st_mode)) throw Error(fmt::format("[file] {} is a directory", path), "name the file in it");
  const auto size = static_cast<size_t>(status.st_size);
  if (S_ISREG(status.st_mode) && size > 0) {
    void* mapping = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
    if (mapping != MAP_FAILED) {
      madvise(mapping, size, MADV_SEQUENTIAL);
      mapping_ = mapping;
      bytes_ = {static_cast<const char*>(mapping), size};
      return;
    }
  }
  read_all(file.number, path);
}

void MappedFile::read_all(int descriptor, const std::string& path) {
  constexpr size_t kPiece = 1 << 20;
  for (size_t at = 0;;) {
    copy_.resize(at + kPiece);
    const ssize_t n = read(descriptor, copy_.data() + at, kPiece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(fmt::format("[file] cannot read {}: {}", path, std::strerror(errno)), "is the file readable?");
    at += static_cast<size_t>(n);
    if (n > 0) continue;
    copy_.resize(at);
    break;
  }
  bytes_ = copy_;
}

void MappedFile::let_go(size_t n) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (mapping_) madvise(mapping_, n / page * page, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (mapping_) munmap(mapping_, bytes_.size());
}

}  // namespace plimsoll
