// Cases of the line protocol (docs/replay.md) beside the answers that were recorded for them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "allocator/replay_protocol.h"

namespace plimsoll {

inline std::string text_of(const std::filesystem::path& path) {
  if (path.extension() != ".gz") {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string out;
  FILE* pipe = popen(("gzip -dc '" + path.string() + "'").c_str(), "r");
  char buffer[1 << 16];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  pclose(pipe);
  return out;
}

inline std::vector<std::string> answers(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') out.push_back(line);
  return out;
}

// X.expect of X.case, X.expect.gz of X.case.gz.
inline std::filesystem::path expected_of(const std::filesystem::path& path) {
  std::string name = path.filename().string();
  return path.parent_path() / name.replace(name.find(".case"), 5, ".expect");
}

// Every X.case (or X.case.gz) of a folder answers exactly X.expect; returns how many there are.
inline int check_cases(const std::filesystem::path& folder) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".case") == std::string::npos) continue;
    ++cases;
    const auto got = answers(replay_protocol(text_of(entry.path())));
    const auto expected = answers(text_of(expected_of(entry.path())));
    EXPECT_EQ(got.size(), expected.size()) << name;
    for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
      EXPECT_EQ(got[i], expected[i]) << name << ", answer " << i + 1;
      if (got[i] != expected[i]) break;
    }
  }
  return cases;
}

}  // namespace plimsoll
