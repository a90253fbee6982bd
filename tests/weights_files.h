// Writes small files of weights, whole and broken, for tests.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll {

// A folder that goes with the test.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("plimsoll_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string path(const std::string& name = "") const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc) << bytes;
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

inline std::string little_endian(uint64_t n, size_t size) {
  std::string out;
  for (size_t i = 0; i < size; ++i) out += static_cast<char>(n >> (8 * i));
  return out;
}

inline std::string safetensors_bytes(const std::string& header, size_t data = 0) {
  return little_endian(header.size(), 8) + header + std::string(data, '\0');
}

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

// BF16 tensors one after another, with a header alone: data is never read.
inline std::string safetensors_bytes(const std::vector<NamedShape>& tensors) {
  std::string header = "{";
  int64_t at = 0;
  for (const NamedShape& t : tensors) {
    int64_t bytes = 2;
    std::string shape;
    for (const int64_t n : t.shape) {
      bytes *= n;
      shape += (shape.empty() ? "" : ",") + std::to_string(n);
    }
    header += (header.size() > 1 ? ",\"" : "\"") + t.name + R"(":{"dtype":"BF16","shape":[)" + shape + R"(],"data_offsets":[)" +
              std::to_string(at) + "," + std::to_string(at + bytes) + "]}";
    at += bytes;
  }
  return safetensors_bytes(header + "}");
}

inline std::string gguf_text(const std::string& text) { return little_endian(text.size(), 8) + text; }
inline std::string gguf_number(const std::string& key, uint32_t n) { return gguf_text(key) + little_endian(4, 4) + little_endian(n, 4); }
inline std::string gguf_string(const std::string& key, const std::string& text) {
  return gguf_text(key) + little_endian(8, 4) + gguf_text(text);
}
// `shape` as ggml has it: the innermost first.
inline std::string gguf_tensor(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type = 0) {
  std::string out = gguf_text(name) + little_endian(shape.size(), 4);
  for (const uint64_t n : shape) out += little_endian(n, 8);
  return out + little_endian(type, 4) + little_endian(0, 8);
}
inline std::string gguf_bytes(const std::vector<std::string>& keys, const std::vector<std::string>& tensors, uint32_t version = 3) {
  std::string out = "GGUF" + little_endian(version, 4) + little_endian(tensors.size(), 8) + little_endian(keys.size(), 8);
  for (const std::string& k : keys) out += k;
  for (const std::string& t : tensors) out += t;
  return out;
}

inline std::string small_gguf() {
  const std::string tokens = gguf_text("tokenizer.ggml.tokens") + little_endian(9, 4) + little_endian(8, 4) + little_endian(3, 8) +
                             gguf_text("a") + gguf_text("b") + gguf_text("");
  return gguf_bytes({gguf_string("general.architecture", "llama"), gguf_number("llama.block_count", 2),
                     gguf_number("llama.embedding_length", 64), gguf_number("llama.feed_forward_length", 128),
                     gguf_number("llama.attention.head_count", 4), gguf_number("llama.attention.head_count_kv", 2), tokens},
                    {gguf_tensor("token_embd.weight", {64, 100}, 12), gguf_tensor("blk.0.attn_q.weight", {64, 64}, 2)});
}

}  // namespace plimsoll
