// Evidence that is too large for the repository, or not ours to give away: a folder that tools/evidence names. Nothing here is a test of
// ./test, which has data of its own for all of it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace plimsoll {

// A file or folder of it; must be there.
inline std::filesystem::path evidence(const std::string& name) {
  const char* folder = std::getenv("PLIMSOLL_EVIDENCE");
  if (!folder) throw std::runtime_error("PLIMSOLL_EVIDENCE names no folder: use tools/evidence FOLDER");
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  if (!std::filesystem::exists(path)) throw std::runtime_error(path.string() + " is not there");
  return path;
}

}  // namespace plimsoll
