// The house rule that includes follow src/LAYERS.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

namespace {

namespace fs = std::filesystem;
const fs::path kSource = fs::path(PLIMSOLL_SOURCE_DIR) / "src";

std::map<std::string, int> read_layers() {
  std::map<std::string, int> layers;
  std::ifstream in(kSource / "LAYERS");
  std::string line;
  while (std::getline(in, line))
    if (!line.empty() && line[0] != '#') layers.emplace(line, static_cast<int>(layers.size()));
  return layers;
}

std::vector<fs::path> sources() {
  std::vector<fs::path> out;
  for (const auto& entry : fs::recursive_directory_iterator(kSource))
    if (entry.path().extension() == ".cpp" || entry.path().extension() == ".h") out.push_back(entry.path());
  return out;
}

TEST(Layers, EveryFolderIsListed) {
  const auto layers = read_layers();
  for (const auto& entry : fs::directory_iterator(kSource)) {
    if (!entry.is_directory() || fs::is_empty(entry.path())) continue;
    EXPECT_TRUE(layers.contains(entry.path().filename().string())) << entry.path();
  }
}

TEST(Layers, IncludesNeverGoAgainstTheFlow) {
  const auto layers = read_layers();
  const std::regex include(R"re(^#include "([a-z_]+)/[^"]+")re");
  for (const fs::path& file : sources()) {
    const std::string folder = fs::relative(file, kSource).begin()->string();
    std::ifstream in(file);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      std::smatch m;
      if (!std::regex_search(line, m, include)) continue;
      ASSERT_TRUE(layers.contains(m[1].str())) << file << ":" << number << ": " << line;
      EXPECT_LE(layers.at(m[1].str()), layers.at(folder)) << file << ":" << number << ": " << line;
    }
  }
}

}  // namespace
