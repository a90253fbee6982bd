#include "model/hub_cache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "model/hub_names.h"

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// huggingface_hub/constants.py: the first that is set decides.
fs::path cache_folder() {
  for (const char* whole : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string path = variable(whole); !path.empty()) return path;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface" / "hub";
  const std::string home = variable("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "huggingface" / "hub";
}

bool is_model_folder(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "config.json", error);
}

// What refs/main names: the commit of the last download.
fs::path main_snapshot(const fs::path& model) {
  std::ifstream file(model / "refs" / "main");
  std::string commit;
  file >> commit;
  const bool plain = !commit.empty() && commit.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  return plain ? model / "snapshots" / commit : fs::path();
}

fs::path newest_snapshot(const fs::path& model) {
  fs::path newest;
  std::error_code error;
  for (fs::directory_iterator at(model / "snapshots", error), end; !error && at != end; at.increment(error)) {
    if (!is_model_folder(at->path())) continue;
    std::error_code unknown;
    const bool later = newest.empty() || fs::last_write_time(at->path(), unknown) > fs::last_write_time(newest, unknown);
    if (later) newest = at->path();
  }
  return newest;
}

}  // namespace

std::optional<std::string> in_hub_cache(const std::string& id) {
  if (!is_hub_id(id)) return std::nullopt;
  const fs::path cache = cache_folder();
  if (cache.empty()) return std::nullopt;
  const size_t slash = id.find('/');
  const fs::path model = cache / ("models--" + id.substr(0, slash) + "--" + id.substr(slash + 1));
  for (const fs::path& snapshot : {main_snapshot(model), newest_snapshot(model)})
    if (!snapshot.empty() && is_model_folder(snapshot)) return snapshot.string();
  return std::nullopt;
}

}  // namespace plimsoll
