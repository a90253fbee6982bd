#include "measure/saved_state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "util/error.h"

namespace plimsoll::measure {

namespace {

using Json = nlohmann::json;
constexpr uint64_t kMostHeader = uint64_t{1} << 28;

class File {
 public:
  File(const std::string& path, int flags, const char* of = "checkpoint")
      : path_(path), of_(of), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail("open");
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(const void* data, size_t n) {
    for (const auto* at = static_cast<const char*>(data); n > 0;) {
      const ssize_t done = ::write(fd_, at, n);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail("write");
      at += done;
      n -= static_cast<size_t>(done);
    }
  }
  void read(void* data, size_t n) {
    for (auto* at = static_cast<char*>(data); n > 0;) {
      const ssize_t done = ::read(fd_, at, n);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail("read");
      if (done == 0) throw Error(fmt::format("[checkpoint] {} ends too early", path_), "it is not whole; take another one");
      at += done;
      n -= static_cast<size_t>(done);
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) fail("write");
  }
  void close() {
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) fail("write");
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    const int code = errno;
    throw Error(fmt::format("[{}] cannot {} {}: {}", of_, what, path_, std::strerror(code)),
                code == ENOSPC || code == EFBIG || code == EDQUOT
                    ? "make room, or name a folder on another disk; the checkpoint before it is untouched"
                    : "is the folder there, and writable?");
  }
  std::string path_;
  const char* of_;
  int fd_;
};

const char* type_name(const Tensor& t) {
  if (t.scalar_type() == torch::kFloat32) return "F32";
  if (t.scalar_type() == torch::kInt64) return "I64";
  throw Error("[checkpoint] a tensor of type " + std::string(c10::toString(t.scalar_type())) + " is not saved");
}

struct Header {
  Json json;
  size_t bytes = 0;
};

Header read_header(File& file, const std::string& path) {
  uint64_t length = 0;
  file.read(&length, sizeof length);
  if (length > kMostHeader) throw Error(fmt::format("[checkpoint] {} is no safetensors file", path), "name one that `measure` wrote");
  std::string text(length, '\0');
  file.read(text.data(), text.size());
  Header header{Json::parse(text, nullptr, false), sizeof length + text.size()};
  if (!header.json.is_object()) throw Error(fmt::format("[checkpoint] {} is no safetensors file", path), "name one that `measure` wrote");
  return header;
}

Notes notes_of(const Json& header) {
  Notes notes;
  if (header.contains("__metadata__") && header["__metadata__"].is_object())
    for (const auto& item : header["__metadata__"].items())
      if (item.value().is_string()) notes[item.key()] = item.value().get<std::string>();
  return notes;
}

std::string part_of(const std::string& path) { return path + ".part"; }

void sync_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  File(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY).sync();
}

void write_all(const std::string& path, const Notes& notes, const std::vector<NamedParameter>& tensors) {
  Json header = Json::object();
  header["__metadata__"] = notes;
  size_t at = 0;
  for (const auto& [name, t] : tensors) {
    TORCH_INTERNAL_ASSERT(t.is_contiguous());
    header[name] = {{"dtype", type_name(t)}, {"shape", t.sizes().vec()}, {"data_offsets", {at, at + t.nbytes()}}};
    at += t.nbytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  for (const auto& [name, t] : tensors) file.write(t.data_ptr(), t.nbytes());
  file.sync();
  file.close();
}

}  // namespace

void check_writable(const std::string& path, const char* flag) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw Error(fmt::format("[{}] {} is a folder", flag, path), "name a file in it");
  File(part_of(path), O_WRONLY | O_CREAT, flag).close();
  ::unlink(part_of(path).c_str());
}

void save_state(const std::string& path, const Notes& notes, const std::vector<NamedParameter>& tensors) {
  const std::string part = part_of(path);
  try {
    write_all(part, notes, tensors);
    std::filesystem::rename(part, path);
    sync_folder_of(path);
  } catch (...) {
    ::unlink(part.c_str());
    throw;
  }
}

Notes load_state(const std::string& path, const std::vector<NamedParameter>& tensors) {
  File file(path, O_RDONLY);
  const Header header = read_header(file, path);
  size_t at = 0;
  for (const auto& [name, t] : tensors) {
    const Json found = header.json.value(name, Json());
    if (!found.is_object() || found.value("dtype", "") != type_name(t) || found.value("shape", Json()) != Json(t.sizes().vec()) ||
        found.value("data_offsets", Json()) != Json({at, at + t.nbytes()}))
      throw Error(fmt::format("[checkpoint] {} has no {} of the shape that this model has", path, name),
                  "resume with the model and settings it was written by");
    file.read(t.data_ptr(), t.nbytes());
    at += t.nbytes();
  }
  return notes_of(header.json);
}

Notes read_notes(const std::string& path) {
  File file(path, O_RDONLY);
  return notes_of(read_header(file, path).json);
}

}  // namespace plimsoll::measure
