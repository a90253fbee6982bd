// The house rule that includes follow src/LAYERS.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path kSource = fs::path(PLIMSOLL_SOURCE_DIR) / "src";

// Each folder with those that its files may include.
std::map<std::string, std::set<std::string>> read_layers() {
  std::map<std::string, std::set<std::string>> layers;
  std::ifstream in(kSource / "LAYERS");
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(':');
    EXPECT_NE(colon, std::string::npos) << "LAYERS: '" << line << "' is not FOLDER: FOLDERS";
    std::istringstream names(line.substr(colon + 1));
    std::set<std::string>& allowed = layers[line.substr(0, colon)];
    for (std::string name; names >> name;) {
      EXPECT_TRUE(layers.contains(name)) << "LAYERS: " << line.substr(0, colon) << " may include " << name
                                         << ", which stands below it or nowhere";
      allowed.insert(name);
    }
  }
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

// Folders that each folder's files include, with one place for each.
std::map<std::string, std::map<std::string, std::string>> included_folders() {
  const std::regex include(R"re(^#include "([a-z_]+)/[^"]+")re");
  std::map<std::string, std::map<std::string, std::string>> included;
  for (const fs::path& file : sources()) {
    const std::string folder = fs::relative(file, kSource).begin()->string();
    std::ifstream in(file);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number)
      if (std::smatch m; std::regex_search(line, m, include) && m[1].str() != folder)
        included[folder].emplace(m[1].str(), file.string() + ":" + std::to_string(number));
  }
  return included;
}

TEST(Layers, AFolderIncludesOnlyThoseItMay) {
  const auto layers = read_layers();
  for (const auto& [folder, others] : included_folders())
    for (const auto& [other, place] : others)
      EXPECT_TRUE(layers.at(folder).contains(other)) << place << ": " << folder << " may not include " << other;
}

TEST(Layers, NoPermissionIsLeftOver) {
  const auto included = included_folders();
  for (const auto& [folder, allowed] : read_layers())
    for (const std::string& other : allowed)
      EXPECT_TRUE(included.contains(folder) && included.at(folder).contains(other))
          << "LAYERS: " << folder << " no longer includes " << other;
}

}  // namespace
