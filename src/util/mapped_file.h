// The bytes of a file, mapped and not copied, so that a file of any size costs only what is looked at. A pipe or another
// thing that cannot be mapped is read instead.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

class MappedFile {
 public:
  // Throws Error for a path that cannot be opened or is a directory.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }
  // The first `n` bytes are not needed for now: they no longer count as this process's memory. Looking at them reads them again.
  void let_go(size_t n) const;

 private:
  void read_all(int descriptor, const std::string& path);

  void* mapping_ = nullptr;
  std::string copy_;
  std::string_view bytes_;
};

}  // namespace plimsoll
