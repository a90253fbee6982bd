#include "util/output_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "util/error.h"

namespace plimsoll {

namespace fs = std::filesystem;

void check_output_file(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) throw Error("[file] " + path + " is a directory", "name a file in it", ExitCode::usage);
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error))
    throw Error("[file] " + path + " cannot be written: there is no directory " + folder.string(), "make it first", ExitCode::usage);
  if (::access(folder.c_str(), W_OK) != 0)
    throw Error("[file] " + path + " cannot be written: no permission in " + folder.string(), "choose another directory", ExitCode::usage);
}

void check_new_file(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error))
    throw Error("[file] " + path + " exists already", "choose another name, or remove it first", ExitCode::usage);
  check_output_file(path);
}

void write_output_file(const std::string& path, std::string_view bytes) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {  // /dev/stdout, a pipe
    std::ofstream out(path, std::ios::binary);
    out << bytes;
    out.flush();
    if (!out) throw Error("[file] " + path + " cannot be written", "name a file", ExitCode::usage);
    return;
  }
  check_output_file(path);
  const std::string unfinished = path + ".part";
  {
    std::ofstream out(unfinished, std::ios::binary);
    out << bytes;
    out.flush();
    if (!out) {
      fs::remove(unfinished, error);
      throw Error("[file] " + path + " cannot be written", "is there room on its disk?", ExitCode::usage);
    }
  }
  fs::rename(unfinished, path, error);
  if (error) throw Error("[file] " + path + " cannot be written: " + error.message(), "choose another directory", ExitCode::usage);
}

}  // namespace plimsoll
