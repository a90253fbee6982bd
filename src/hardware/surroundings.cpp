#include "hardware/surroundings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

namespace plimsoll {

namespace fs = std::filesystem;

namespace {

// What decides which devices a process sees, and how much of them.
constexpr const char* kVariables[] = {"CUDA_VISIBLE_DEVICES",
                                      "CUDA_DEVICE_ORDER",
                                      "NVIDIA_VISIBLE_DEVICES",
                                      "HIP_VISIBLE_DEVICES",
                                      "ROCR_VISIBLE_DEVICES",
                                      "ZE_AFFINITY_MASK",
                                      "PYTORCH_CUDA_ALLOC_CONF",
                                      "PYTORCH_ALLOC_CONF",
                                      "PYTORCH_HIP_ALLOC_CONF",
                                      "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
                                      "SLURM_JOB_ID",
                                      "SLURM_MEM_PER_NODE",
                                      "SLURM_JOB_GPUS",
                                      "WSL_DISTRO_NAME"};

#ifdef __APPLE__
std::optional<std::string> sysctl_here(const std::string& name) {
  char buffer[256] = {};
  size_t size = sizeof buffer - 1;
  if (sysctlbyname(name.c_str(), buffer, &size, nullptr, 0) != 0) return std::nullopt;
  if (size == sizeof(int64_t) && name == "hw.memsize") return std::to_string(*reinterpret_cast<int64_t*>(buffer));
  if (size == sizeof(int32_t) && name == "iogpu.wired_limit_mb") return std::to_string(*reinterpret_cast<int32_t*>(buffer));
  return std::string(buffer);
}
#endif

}  // namespace

Surroundings Surroundings::here() {
  Surroundings s;
  for (const char* name : kVariables)
    if (const char* value = std::getenv(name)) s.environment[name] = value;
#ifdef __APPLE__
  s.sysctl = sysctl_here;
#endif
  return s;
}

std::optional<std::string> Surroundings::variable(const std::string& name) const {
  const auto found = environment.find(name);
  return found == environment.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> Surroundings::read(const std::string& path) const {
  std::error_code error;
  if (!fs::is_regular_file(root + path, error)) return std::nullopt;
  std::ifstream in(root + path, std::ios::binary);
  if (!in) return std::nullopt;
  constexpr size_t kMost = 1 << 20;
  std::string text;
  char piece[4096];
  while (text.size() < kMost && (in.read(piece, sizeof piece), in.gcount() > 0)) text.append(piece, static_cast<size_t>(in.gcount()));
  if (text.empty() && in.bad()) return std::nullopt;
  // Device-tree strings end with a NUL.
  text.erase(text.find_last_not_of(std::string(" \t\r\n\0", 5)) + 1);
  return text;
}

std::optional<int64_t> Surroundings::read_number(const std::string& path) const {
  const auto text = read(path);
  return text ? whole_number(*text) : std::nullopt;
}

std::vector<std::string> Surroundings::list(const std::string& path) const {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator it(root + path, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

bool Surroundings::exists(const std::string& path) const {
  std::error_code error;
  return fs::exists(root + path, error);
}

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::map<std::string, std::string> key_values(const std::string& text, char separator) {
  std::map<std::string, std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    const size_t value = line.find_first_not_of(" \t", at + 1);
    std::string key = line.substr(0, at);
    key.erase(key.find_last_not_of(" \t") + 1);
    out.emplace(key, value == std::string::npos ? "" : line.substr(value));
  }
  return out;
}

std::string printable(const std::string& text) {
  constexpr size_t kLongest = 120;
  std::string out;
  for (const unsigned char c : text) {
    if (out.size() >= kLongest) return out + "...";
    out += c >= 0x20 && c < 0x7f ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  }
  return out;
}

}  // namespace plimsoll
