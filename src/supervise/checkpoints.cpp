#include "supervise/checkpoints.h"

#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace plimsoll {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 10000;  // of a folder, that are looked at

std::string bytes_at(std::ifstream& in, int64_t at, size_t count) {
  std::string out(count, '\0');
  in.clear();
  in.seekg(at);
  in.read(out.data(), static_cast<std::streamsize>(count));
  out.resize(static_cast<size_t>(in.gcount()));
  return out;
}

// A zip ends with the record of its directory and a comment of at most 65535 bytes (APPNOTE.TXT of PKWARE, 4.3.16).
bool ends_as_zip(std::ifstream& in, int64_t size) {
  const int64_t tail = std::min<int64_t>(size, 65535 + 22);
  return bytes_at(in, size - tail, static_cast<size_t>(tail)).find("PK\x05\x06") != std::string::npos;
}

// A length, a header of JSON, and the data that its offsets reach to.
std::string incomplete_safetensors(std::ifstream& in, int64_t size) {
  constexpr int64_t kMostHeader = 100 << 20;  // safetensors' own limit
  const std::string first = bytes_at(in, 0, 8);
  uint64_t length = 0;
  if (first.size() == 8) std::memcpy(&length, first.data(), 8);
  if (first.size() < 8 || length == 0 || length > static_cast<uint64_t>(kMostHeader) || static_cast<int64_t>(length) + 8 > size)
    return "its header is cut off";
  const nlohmann::json header = nlohmann::json::parse(bytes_at(in, 8, length), nullptr, false);
  if (!header.is_object()) return "its header cannot be read";
  int64_t end = 0;
  for (const auto& [name, tensor] : header.items())
    if (tensor.is_object() && tensor.contains("data_offsets") && tensor["data_offsets"].is_array() && tensor["data_offsets"].size() == 2 &&
        tensor["data_offsets"][1].is_number_integer())
      end = std::max(end, tensor["data_offsets"][1].get<int64_t>());
  return end > size - 8 - static_cast<int64_t>(length) ? "its data is cut off" : "";
}

std::string incomplete_file(const std::string& path) {
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (error) return "it cannot be looked at: " + error.message();
  if (size == 0) return "it is empty";
  std::ifstream in(path, std::ios::binary);
  if (!in) return "it cannot be read";
  if (path.ends_with(".safetensors")) return incomplete_safetensors(in, size);
  if (bytes_at(in, 0, 4) == "PK\x03\x04" && !ends_as_zip(in, size)) return "its end is missing";
  return "";
}

bool holds_weights(const std::string& name) {
  for (const char* ending : {".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".json"})
    if (name.ends_with(ending)) return true;
  return false;
}

std::string incomplete_folder(const fs::path& folder) {
  std::error_code error;
  size_t files = 0;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end && files < kMostFiles; at.increment(error)) {
    std::error_code unreadable;
    if (!at->is_regular_file(unreadable)) continue;
    ++files;
    const std::string path = at->path().string();
    if (!holds_weights(path)) continue;
    if (const std::string why = incomplete_file(path); !why.empty())
      return fs::relative(at->path(), folder, unreadable).string() + ": " + why;
  }
  if (files == 0) return "it is empty";
  // transformers' Trainer writes its state behind weights and optimizer.
  if (folder.filename().string().starts_with("checkpoint-") && !fs::exists(folder / "trainer_state.json", error) &&
      (fs::exists(folder / "model.safetensors", error) || fs::exists(folder / "pytorch_model.bin", error) ||
       fs::exists(folder / "model.safetensors.index.json", error) || fs::exists(folder / "adapter_model.safetensors", error)))
    return "trainer_state.json is missing";
  return "";
}

}  // namespace

CheckpointTimes checkpoints_of(const std::string& pattern) {
  CheckpointTimes out;
  glob_t found{};
  if (!pattern.empty() && glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      struct stat info {};
      if (stat(found.gl_pathv[i], &info) == 0) out[found.gl_pathv[i]] = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
    }
  globfree(&found);
  return out;
}

std::string incomplete(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? incomplete_folder(path) : incomplete_file(path);
}

NewestCheckpoint newest_checkpoint(const std::string& pattern, const CheckpointTimes& before) {
  std::vector<std::pair<int64_t, std::string>> own;
  for (const auto& [path, time] : checkpoints_of(pattern)) {
    const auto known = before.find(path);
    if (known == before.end() || known->second != time) own.emplace_back(time, path);
  }
  std::sort(own.rbegin(), own.rend());
  NewestCheckpoint out;
  for (const auto& [time, path] : own) {
    const std::string why = incomplete(path);
    if (why.empty()) {
      out.path = path;
      return out;
    }
    out.skipped.push_back(path + ": " + why);
  }
  return out;
}

}  // namespace plimsoll
