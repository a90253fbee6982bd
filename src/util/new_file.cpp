#include "util/new_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "util/error.h"

namespace plimsoll {

namespace fs = std::filesystem;

void check_new_file(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error))
    throw Error("[file] " + path + " exists already", "choose another name, or remove it first", ExitCode::usage);
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error))
    throw Error("[file] " + path + " cannot be written: there is no directory " + folder.string(), "make it first", ExitCode::usage);
  if (::access(folder.c_str(), W_OK) != 0)
    throw Error("[file] " + path + " cannot be written: no permission in " + folder.string(), "choose another directory", ExitCode::usage);
}

void write_new_file(const std::string& path, std::string_view text) {
  check_new_file(path);
  std::error_code error;
  const std::string unfinished = path + ".part";
  {
    std::ofstream out(unfinished, std::ios::binary);
    out << text;
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
